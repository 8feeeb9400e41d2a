# SPDX-License-Identifier: Apache-2.0
"""Writes jinja_cases.json: small templates, their variables, and what Python's jinja2 makes of them (jinja_oracle.py).

    jinja_cases.py > jinja_cases.json
"""
import json

from jinja_oracle import render

DATA = {
    "name": "Ann", "n": 3, "x": 1.5, "yes": True, "nothing": None, "text": "  Grüße, <b>Welt</b>!\n", "empty": "",
    "list": [3, 1, 2], "words": ["b", "A", "c", "a"], "nested": [[1, 2], [3]],
    "dict": {"b": 1, "a": {"items": [1], "get": 2}, "C": None},
    "people": [
        {"name": "Bo", "age": 30, "tags": ["x"], "address": {"city": "Rome"}},
        {"name": "al", "age": 25, "tags": [], "address": {"city": "Oslo"}},
        {"name": "Cy", "age": 30, "address": {"city": "rome"}},
    ],
    "tree": [{"v": 1, "kids": [{"v": 2, "kids": []}, {"v": 3, "kids": [{"v": 4, "kids": []}]}]}, {"v": 5, "kids": []}],
}

# Each is rendered with DATA.
PRINTED = """
1 + 2 * 3 ** 2 - -4 | abs
7 // 2, -7 // 2, 7 % 3, -7 % 3, 7 / 2, 6 / 2
2 ** 10, 2 ** -1, 2 ** 0.5, 2 ** 3 ** 2, -2 ** 2
1.0, 1e16, 1e15, 1.5e-5, 0.0001, 123456789.125, 1e100, -0.0, 0.1 + 0.2
10 / 4, 1 / 3, 7.5 // 2, -7.5 % 2, 1e308 * 10
0x1F, 0b101, 0o17, 1_000, 1_0.5
1 / 0
1 % 0
9223372036854775807
true, True, false, none, None, [true, none]
not 1, not '', not [] and 1, 0 or 'x', 1 and 0, none or ''
1 < 2 < 3, 1 < 3 < 2, 3 > 2 == true, 1 == 1.0, '1' == 1, [1] == [1.0], (1,) == [1]
'a' < 'b', 'a' < 'B', [1, 2] < [1, 3], (1,) < (1, 0)
1 < 'a'
'a' in 'abc', 'x' not in 'abc', 1 in [1], 'b' in dict, 2 in (1, 2), none in []
1 in 'abc'
1 in none
'a' ~ 1 ~ none ~ true ~ [1] ~ 1.0 ~ missing
'a' + 1
[1] + [2], (1,) + (2,), 'a' * 3, 3 * 'ab', [0] * 2
'%s-%05.1f-%d%%-%r-%+d-%-4s|' % ('a', 3.14159, 42, 'q', 5, 'z')
'%(a)s %(b)d' % {'a': 1, 'b': 2}
'%s' % name, '%s' % none, '%5s|%-5s|' % ('a', 'b')
'%s %s' % 'a'
'%d' % 'a'
'a' if yes else 'b', 'a' if not yes else 'b', ('a' if not yes), 'x' if n > 5 else 'y' if n > 2 else 'z'
missing
missing.attribute
missing.attribute is defined
missing['x']
missing + 1
missing()
missing is undefined, missing|default('d'), missing == missing2, missing or 'o'
[missing]
dict.b, dict['b'], dict.a.items is mapping, dict['a']['items'], dict.missing, dict['missing']
dict.get('b'), dict.get('zz'), dict.get('zz', 5), dict.a.get('get')
dict.a['get'], dict.items() | list, dict.keys() | list, dict.values() | list
dict.items(), dict.keys()
name.upper(), name.lower(), name['upper'](), name[0], name[-1], name[5], name[0:2], name[::-1], name[1:], name[:-1]
list[0], list[-1], list[5], list[1:], list[::-1], list[:2], list[::2], list[-2:], list[5:], list[1:1]
list.0, nested.0.1, list[true]
list['a'], name.foo, n.foo, none.foo
none.foo.bar
list[0:'a']
text.strip(), text.lstrip(), text.rstrip(), 'xxaxx'.strip('x'), 'abcba'.strip('ab'), 'xyz'.rstrip('zy')
'a,b,,c'.split(','), 'a b  c '.split(), 'a b c'.split(' ', 1), 'a,b,c'.rsplit(',', 1), ' a b c '.split(none, 1), ' a b c '.rsplit(none, 1)
'abc'.split('')
'a\\nb\\r\\nc\\n'.splitlines(), 'a\\nb'.splitlines(true)
'Hello'.startswith('He'), 'Hello'.endswith(('x', 'lo')), 'Hello'.startswith('l', 2), 'Hello'.startswith(('a', 'b'))
'abcabc'.replace('b', 'X'), 'abcabc'.replace('b', 'X', 1), 'abc'.replace('', '-'), 'aaa'.replace('aa', 'b')
'-'.join(['a', 'b']), ','.join('abc')
','.join([1])
'abcabc'.find('c'), 'abc'.find('z'), 'abcabc'.rfind('c'), 'äöü'.find('ü'), 'abcabc'.count('b'), 'abcabc'.index('c'), 'abcabc'.find('b', 2)
'abc'.index('z')
'hello wORLD'.title(), 'hello wORLD'.capitalize(), 'straße'.upper(), 'ÀÉ'.lower(), "they're".title()
'12'.isdigit(), 'a1'.isalnum(), 'ab'.isalpha(), ' '.isspace(), ''.isdigit(), 'ab'.islower(), 'AB'.isupper(), '٣'.isdigit()
'a-b-c'.partition('-'), 'a-b-c'.rpartition('-'), 'abc'.partition('-')
'prefix-x'.removeprefix('prefix-'), 'x.py'.removesuffix('.py'), 'x'.removesuffix('y')
'{} {}'.format('a', 1), '{1}{0}'.format('a', 'b'), '{x}{{}}'.format(x=1), '{:>5}|{:<5}|{:^5}'.format('a', 'b', 'c'), '{0.name} {0[age]}'.format(people[0])
'{:05d} {:.2f} {:,} {:+} {:%} {!r}'.format(42, 3.14159, 1234567, 5, 0.25, 'q')
list.append(4)
list.append
dict.update({})
list.index(1), list.count(3), (1, 2).index(2)
[1, 'a', 1.0, none, true, "it's", 'say "hi"', 'both \\' "', '\\n\\t\\\\ ä \\x00 \\u200b']
{'a': 1, 2: [3], none: (1,), 'k': {'n': ()}}
(), (1,), (1, 2)
{1: 'a', 1.0: 'b', true: 'c'}
{[1]: 2}
[1, 2] is sequence, 'a' is sequence, n is sequence, dict is sequence, missing is sequence, dict.items() is sequence
[1] is iterable, 'a' is iterable, n is iterable, dict is mapping, missing is iterable, none is iterable
n is number, yes is number, x is number, 'a' is number, n is integer, yes is integer, x is float, yes is boolean, x is string
n is odd, n is even, n is divisibleby 3, n is divisibleby(2), none is none, nothing is none, missing is none
yes is true, yes is false, n is true, 1 is sameas 1, yes is sameas true, yes is sameas 1
'a' is lower, 'A' is upper, 'upper' is filter, 'odd' is test, 'zz' is filter, range is callable, name is callable
n is eq 3, n is equalto(3), n is ne 2, n is gt 2, n is lt 2, n is ge 3, n is le 3, n is in [3], 'a' is in 'abc', n is not none
n is nosuchtest
name|nosuchfilter
text|trim, 'xax'|trim('x'), 5|trim, text|length, list|length, dict|count, 'äöü'|length
n|length
name|upper, 'ab cd-ef (gh'|title, 'aB'|capitalize, "it's o'clock"|title
words|sort, words|sort(case_sensitive=true), words|sort(reverse=true), list|sort, people|sort(attribute='age')|map(attribute='name')|list
people|sort(attribute='address.city,name')|map(attribute='name')|join(' ')
[1, 'a']|sort
list|min, list|max, words|min, []|min, people|max(attribute='age'), list|sum, people|sum(attribute='age'), nested|sum(start=[])
list|first, list|last, ''|first, 'abc'|first, 'abc'|last, dict|first, []|last
list|reverse|list, 'abc'|reverse, list|join('-'), list|join, people|join(', ', attribute='name'), 'abc'|join('.')
words|unique|list, words|unique(case_sensitive=true)|list, [1, 1.0, true, 2]|unique|list
people|map(attribute='tags', default='none')|list, people|map(attribute='address.city')|map('upper')|list, list|map('string')|join('')
people|selectattr('tags')|map(attribute='name')|list, people|rejectattr('tags')|map(attribute='name')|list, people|selectattr('age', 'equalto', 30)|list|length
people|selectattr('address.city', 'in', ['Rome', 'Oslo'])|map(attribute='name')|list, [0, 1, 2, '']|select|list, list|reject('odd')|list, list|select('>', 1)|list
list|map('nosuch')|list
dict|dictsort, {'b': 1, 'A': 2}|dictsort(true), {'b': 1, 'a': 2}|dictsort(by='value'), {'b': 1, 'a': 2}|dictsort(reverse=true)
dict|items|list, missing|items|list, {'x': 1}|items|first
n|items|list
missing|default, ''|default('x'), ''|default('x', true), none|d('x'), none|d('x', true), 0|default(5, boolean=true)
3.7|int, '42'|int, ' 42 '|int, 'x'|int, 'x'|int(7), '0x1f'|int(base=16), '1f'|int(0, 16), '3.9'|int, '1_000'|int, true|int, none|int
'1.5'|float, 'x'|float, 'x'|float(2.5), 3|float, '1e3'|float, 'inf'|float, ' 2 '|float
2.5|round, 3.5|round, 2.675|round(2), 42|round, 2.4|round(method='ceil'), -2.5|round(method='floor'), 1234.5|round(-2), 2.345|round(1, 'ceil')
-5|abs, 5.5|abs, yes|abs
text|escape ~ "<a href='x'>"|e ~ 'a<'|safe ~ 'b'|string ~ 5|string ~ none|string
'<'|safe + "<&'\\">", '<' + '>'|safe + '<', ('<' ~ '>'|safe) + '<', '<'|e + '<', '<'|e|e, '<'|safe|e
(('<b>'|safe)|trim)[0] + '<', '<b>'|safe|upper + '<', '<'|safe * 2 + '<', '<'|safe|string + '<', [1]|safe + '"', nothing|safe, missing|safe, ('<'|safe)|tojson
"use '"|safe + people[0].name + "' to '"|safe + "it's <b>" + "'; "|safe + people[0]|tojson
'a\\nb\\n\\nc'|indent, 'a\\nb'|indent(2, true), 'a\\n\\nb'|indent(2, blank=true), 'a\\nb\\n'|indent('> '), ''|indent(2, true)
'ä%s'|format('x'), '%(a)s'|format(a=1)
'abcabc'|replace('b', 'X'), 'abcabc'|replace('b', 'X', 1), 5|replace('5', 'x')
people[0]|attr('name'), (name|attr('upper'))()
{'a': [1, 2.0, none, true, 'ü"\\n<'], 'b': {}, 'c': [], 1: 2}|tojson
{'b': 1, 'a': [1, {'c': []}]}|tojson(indent=2), {'b': 1, 'a': 2}|tojson(sort_keys=true), 'ü😀'|tojson(ensure_ascii=true), [1, 2]|tojson(separators=(',', ':'))
[1, [2]]|tojson(indent='--'), {'a': 1}|tojson(indent=0), (1, 2)|tojson, 1e400|tojson, 1.0|tojson
missing|tojson
range(3)|list, range(1, 7, 2)|list, range(3, 0, -1)|list, range(0)|list, range(5)[1:3], range(2, 4), range(3)|length, range(1, 6)[-1]
range(100001)|list
range(1, 5, 0)
dict(a=1, b='x'), dict([('k', 1)]), dict({'a': 1}, b=2)
namespace(a=1).a, namespace({'x': 2}).x, namespace().zz
joiner()()
raise_exception('no ' ~ name)
strftime_now('%Y') == '1970' or strftime_now('%Y') == '1969'
'a' 'b' "c", 'tab\\tquote\\'\\x41\\u00e4\\101\\z'
name.upper().lower()[0]
[1, 2, 3][1], {'a': 5}['a'], {'a': 5}.a, (1, 2)[0], 'abc'[1]
list|map('abs')|sum + 1
list|select('odd')|list|length > 0
(list|select('odd')) and 'truthy'
list|select('odd')|length
n is defined and n > 2 and not missing
people[0].name ~ people[-1].address.city
'%s' % [1, 2], '%s' % (('a', 'b'),)
-n, +n, -x, -yes, - -n
-name
1 if 2 if 3 else 4 else 5
[1,2,][0], {'a':1,}['a'], dict(a=1,)
name is string and name is not mapping
'a' ~ 'b' * 2 ~ 'c'
2 * 'a' + 'b'
not n in list, not n == 3
(n, name)
n, name
nested|sort(attribute='name')|list, 'straße'.title(), 'ßa'.capitalize(), 'abc' % missing, 'a%sb' % missing
loop
"""

STATEMENTS = [
    "{% if n == 3 %}three{% elif n %}other{% else %}none{% endif %}",
    "{% if missing %}a{% elif nothing %}b{% else %}c{% endif %}",
    "{% for i in list %}{{ i }}{% if not loop.last %},{% endif %}{% else %}empty{% endfor %}",
    "{% for i in [] %}{{ i }}{% else %}empty{% endfor %}|{% for i in missing %}x{% else %}none{% endfor %}",
    "{% for i in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
    "{% for i in list %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {{ loop.previtem is defined }}{{ loop.nextitem is defined }};{% endfor %}",
    "{% for i in range(5) %}{{ loop.cycle('a', 'b') }}{% endfor %}{% for i in [1, 1, 2, 2, 1] %}{{ loop.changed(i) }}{% endfor %}",
    "{% for i in range(10) if i is odd %}{{ i }}:{{ loop.index }}/{{ loop.length }} {% endfor %}",
    "{% for k, v in dict.items() %}{{ k }}={{ v }};{% endfor %}{% for k in dict %}{{ k }}{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3)), (4, (5, 6))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    "{% for a, b in [1] %}{% endfor %}",
    "{% for i in n %}{% endfor %}",
    "{% for i in none %}{% endfor %}",
    "{% for c in 'äb' %}[{{ c }}]{% endfor %}",
    "{% for i in range(6) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in [1, 2] %}{% for j in [1, 2, 3] %}{% if j == 2 %}{% break %}{% endif %}{{ i }}{{ j }}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% for t in tree recursive %}{{ t.v }}{% if t.kids %}({{ loop(t.kids) }}){% endif %}{{ loop.depth }}{% endfor %}",
    "{% for t in list %}{{ loop(t) }}{% endfor %}",
    "{% set x = 1 %}{% for i in list %}{% set x = i %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 1 %}{% if yes %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% if yes %}{% set y = 2 %}{% endif %}{{ y }}",
    "{% for i in list %}{% set inner = i %}{% endfor %}[{{ inner }}]",
    "{% set ns = namespace(found=false, n=0) %}{% for i in list %}{% if i == 1 %}{% set ns.found = true %}{% endif %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.found }}{{ ns.n }}",
    "{% set name.x = 1 %}",
    "{% set missing.x = 1 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a, b = b, a %}{{ a }}{{ b }}{% set (c, d) = (3, 4) %}{{ c }}{{ d }}",
    "{% set ns = namespace() %}{% set ns.a, x = 1, 2 %}{{ ns.a }}{{ x }}",
    "{% set t %}<{{ name }}>{% endset %}{{ t }}{{ t|length }}",
    "{% set t | upper | replace('N', 'M') %}a{{ name }}{% endset %}{{ t }}",
    "{% filter upper %}a{{ name }}{% endfilter %}{% filter replace('a', 'b')|trim %} aaa {% endfilter %}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% set c = 5 %}{% endwith %}{{ a }}{{ c }}",
    "{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}",
    "{% macro m(a, b=2, c='x') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(c=1, a=2) }}{{ m() }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}",
    "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, k=4) }}",
    "{% macro m() %}{{ caller() }}|{{ caller() }}{% endmacro %}{% call m() %}x{{ name }}{% endcall %}",
    "{% macro m(l) %}{% for i in l %}{{ caller(i, j=2) }}{% endfor %}{% endmacro %}{% call(i, j=1, k=7) m(list) %}<{{ i }}{{ j }}{{ k }}>{% endcall %}",
    "{% macro m() %}{{ caller is defined }}{% if caller %}{{ caller() }}{% endif %}{% endmacro %}{{ m() }}",
    "{% macro m() %}x{% endmacro %}{% call m() %}{% endcall %}",
    "{% macro fact(n) %}{% if n <= 1 %}1{% else %}{{ n * fact(n - 1)|int }}{% endif %}{% endmacro %}{{ fact(6) }}",
    "{% macro m() %}{{ later }}{{ name }}{% endmacro %}{% set later = 'L' %}{{ m() }}",
    "{% macro m() %}{% set name = 'inner' %}{{ name }}{% endmacro %}{{ m() }}{{ name }}",
    "{% for i in list %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
    "{% macro m(x, y=x) %}{{ y }}{% endmacro %}{{ m(3) }}",
    "{% macro m(a) %}{% if a > 0 %}{{ a }}{{ m(a - 1) }}{% endif %}{% endmacro %}{{ m(5) }}{{ m.name }}",
    "{% macro m(x) %}{{ x.y.z }}{% endmacro %}{{ m() }}",
    "{% set f = name.upper %}{{ f() }}",
    "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'a': 3, 'b': 4}) }}{{ m(*[5], **{'b': 6}) }}",
    "{% for i in [1, 2] %}{% if i == 2 %}{% set z = 5 %}{% endif %}{{ z }}{% endfor %}",
    "{% for m in [1] %}{{ name }}{% endfor %}{% set name = 'later' %}{{ name }}",
    "{% set name %}{{ name }}!{% endset %}{{ name }}",
    "{% if yes %}{% for m in [1] %}{{ name }}{% endfor %}{% set name = 'later' %}{% endif %}{{ name }}",
    "{% macro m() %}{{ name }}{% endmacro %}{{ m() }}{% set name = 'later' %}{{ m() }}",
    "{% macro m() %}{% for i in [1] %}{{ name }}{% endfor %}{% set name = 1 %}{{ name }}{% endmacro %}{{ m() }}",
    "{% for i in [1, 2] %}{% for j in [1] %}{{ n }}{% endfor %}{% set n = 9 %}{% endfor %}{{ n }}",
    "{{ name }}{% for m in [1] %}{{ name }}{% endfor %}{% set name = 'later' %}{{ name }}",
    "{% with %}{% for m in [1] %}{{ name }}{% endfor %}{% set name = 'in' %}{{ name }}{% endwith %}{{ name }}",
    "{% generation %}a{{ name }}{% endgeneration %}{% for i in list %}{% generation %}{{ i }}{{ loop.index }}{% endgeneration %}{% endfor %}",
    "{% block title %}T{{ name }}{% endblock %}{% block x scoped %}{% endblock x %}",
    "{% print name, n %}",
    "{% raw %}{{ name }}{% if %}{% endraw %}|{%- raw -%}  {{ x }} {%- endraw -%} |",
    "{# comment {{ name }} #}a{#- b -#} c {# multi\nline #}\nd",
    "  {% if yes %}\n    a\n  {% endif %}\n  b\n",
    "  {%- if yes -%}\n    a\n  {%- endif -%}\n  b\n",
    "a\n  {%+ if yes %}\nb\n  {%+ endif +%}\nc",
    "a {{- name -}} b {{ name }} c\n{{ name -}}\n\n d",
    "{% if yes %} \n x{% endif %}\n\n\ny\n\n",
    "a\r\nb\rc{% if yes %}\r\nd{% endif %}\r\n",
    "x {#+ c +#}\n y {# c #}  \n z",
    "   {# only #}\n   {{ name }}\n\t{% set q = 1 %}\n.",
    "{% set x = '\r\n' %}{{ x|length }}",
    "{{ '}}' }}{{ '{{' }}{{ {'a': {'b': 1}}.a.b }}{{ \"%}\" }}",
    "{{ 'a\n  b' }}",
    "{{ n }}{{n}}{{-n}}{{+n}}",
    "{% for i in list -%} {{ i }} {%- endfor %}",
    "{%for i in list%}{{i}}{%endfor%}",
    "{% if n > 2 and\n   name == 'Ann' or\n   false %}yes{% endif %}",
    "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}",
    "{% nosuch %}", "{% if %}", "{% if n %}", "{% endif %}", "{% for %}", "{% for x in %}", "{{ }}", "{{ n", "{% if n", "{# x", "{% raw %}x",
    "{{ n + }}", "{{ (n }}", "{{ [n }}", "{{ n) }}", "{{ {'a' 1} }}", "{{ 'a }}", "{{ n is }}", "{{ n| }}", "{{ a b }}", "{{ 1abc }}", "{{ n.}}", "{{ n ! n }}",
    "{% set 1 = 2 %}", "{% set true = 2 %}", "{% set x %}", "{% for i in list %}{% endif %}", "{% macro m( %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}",
    "{% break %}", "{% call n %}{% endcall %}", "{{ f(a=1, 2) }}", "{{ n is odd is even }}", "{{ dict(a=1, a=2) }}", "{% else %}", "{{ '\\ud800' }}", "{{ '\\x1' }}",
    "{% if false %}{{ n|nosuch }}{% endif %}ok", "{{ 'a' if true else n|nosuch }}",
    "{% set ns = namespace(t='') %}{% for m in people %}{% set ns.t = ns.t + m.name + ';' %}{% endfor %}{{ ns.t }}",
    "{% set l = [] %}{% for i in list %}{% set l = l + [i] %}{% endfor %}{{ l }}",
    "{%- for m in people %}{{- '<|' + m['name'] + '|>\n' + m.address['city'] | trim + '<|end|>' + '\n' }}{%- endfor %}",
    "{% set x = list|select('odd') %}{{ x|list }}{{ x|list }}", "{% set g = people|map(attribute='age') %}{% for a in g %}{{ a }}{{ loop.last }}{% endfor %}{{ g|first }}",
    "{% set it = list|map('string') %}{{ it|first }}{{ it|join }}",
    "{{ namespace(a=1, b=[namespace()]) }}",
    "{{ 1 }}{{ ' ' }}{{ none }}\n\n",
    "{% for i in list %}{% if i > 0 %}{% continue %}{% endif %}{% else %}none finished{% endfor %}",
    "{% for i in list %}{% set q %}{{ i }}{% if i == 1 %}{% break %}{% endif %}{% endset %}{{ q }}{% endfor %}{{ q }}",
    "{% for i in list %}{% filter upper %}a{{ i }}{% if i == 1 %}{% continue %}{% endif %}{% endfilter %}{% endfor %}",
    "{% for i in list %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    "\n\n{{ n }}", "", "\n", "plain",
]


def main():
    cases = [{"template": "{{ " + line + " }}", "variables": "DATA"} for line in PRINTED.strip().splitlines()]
    cases += [{"template": text, "variables": "DATA"} for text in STATEMENTS]
    for case in cases:
        result = render(case["template"], DATA)
        case.update({"text": result["text"]} if "text" in result else {"error": result["error"], "raised": result["raised"]})
        del case["variables"]
    lines = ",\n".join("  " + json.dumps(case, ensure_ascii=False) for case in cases)
    print('{\n"data": ' + json.dumps(DATA, ensure_ascii=False) + ',\n"cases": [\n' + lines + "\n]}")


if __name__ == "__main__":
    main()
