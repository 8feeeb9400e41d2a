#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The first hour of somebody who has read README.md and docs/: tasks at a terminal of 80 columns, each with what must come out.
#   scripts/first_hour.sh [N ...]
# runs all tasks but the first, or those given, with what is built in build/release ($BUILD), and prints a line each. The exit code is 1 if
# one fails.
# Lines that people read must not be wider than 80 columns. Task 1, README.md's first command on a bare system, takes many minutes and root:
# it runs only if asked for, on the suite that $SUITE names.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

root=$PWD
build=${BUILD:-$root/build/release}
tally=$build/engine/tally
[ -x "$tally" ] || die "first_hour.sh: there is no $tally: run scripts/test.sh first, or: cmake --preset release; cmake --build --preset release"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export COLUMNS=80 XDG_CACHE_HOME=$work/cache XDG_STATE_HOME=$work/state
out=$work/out

fail() {
  printf '%s\n' "$*"
  exit 1
}
skip() {
  printf 'skipped: %s\n' "$*"
  exit 77
}
# has TEXT...: each stands in what was said last, whatever blanks and line ends are between its words.
has() {
  local text
  for text in "$@"; do tr -s ' \n' ' ' <"$out" | grep -F -- "$text" >/dev/null || fail "no \"$text\" in: $(head -c 2000 "$out")"; done
}
narrow() {
  local wide
  if wide=$(LC_ALL=C.UTF-8 grep -m 1 -E '^.{81,}' "$out"); then fail "$*: wider than 80 columns: $wide"; fi
}
# ask ARGUMENT...: what tally says in the folder $work goes to $out, and is not too wide.
ask() {
  (cd "$work" && "$tally" "$@") >"$out" 2>&1 </dev/null || fail "tally $*: exit code $?: $(tail -n 3 "$out")"
  narrow "tally $*"
}

task_1() { scripts/bare_root.sh "${SUITE:-bookworm}"; }

task_2() {  # a GGUF file generates text, and help fits the screen
  ask --help
  local command
  for command in $(sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' "$out"); do ask "$command" --help; done
  ask run "$root/models/demo/demo.gguf" -n 24 -p "ROMEO:"
  has "prompt 3 tokens" "decode 23 tokens" "a token 3.28 MFLOP, 1.93 MB active(all) 1,759,284 of 4,541,364" "ended: length"
  [ "$("$tally" run models/demo/demo.gguf -q -n 24 -p "ROMEO:" | wc -c)" -gt 20 ] || fail "there is no text"
}

task_3() {  # chat: a paste of two lines is one message; Up brings it back, Home goes to its beginning
  command -v python3 >/dev/null || skip "python3, which plays the terminal, is not here"
  TERM=xterm python3 - "$tally" "$work/session" >"$out" <<'PYTHON' || fail "$(cat "$out")"
import fcntl, os, pty, re, select, struct, sys, termios, time
tally, session = sys.argv[1:]
child, terminal = pty.fork()
if child == 0:
    os.execv(tally, [tally, "chat", "--session", session])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
screen = ""
def say(keys, end):  # until `end` stands in what is new
    global screen
    seen = ""
    os.write(terminal, keys)
    limit = time.time() + 30
    while not re.search(end, seen):
        if time.time() > limit:
            sys.exit("no %r after %r: %r" % (end, keys, seen[-500:]))
        if select.select([terminal], [], [], .1)[0]:
            try:
                seen += os.read(terminal, 4096).decode("utf-8", "replace")
            except OSError:
                break
    screen += seen
say(b"", r"Ctrl-D ends")
if "libedit" in screen:
    sys.exit("no libedit: " + screen)
say(b"\x1b[200~What news\nfrom Rome?\x1b[201~\r", r"(?s)answer \d+ at.*> ")
say(b"\x1b[A\x01Ay. \r", r"(?s)answer \d+ at.*> ")
say(b"A line that is wider than the terminal, so that it takes the next row as well, as here", r"as here")
say(b"\x01", r"[\r\x08\x1b]")
say(b"\x03", r"(?s)\x1b\[J.*> ")
os.write(terminal, b"\x04")
limit = time.time() + 30
while os.waitpid(child, os.WNOHANG)[0] == 0:
    if time.time() > limit:
        os.kill(child, 9)
        sys.exit("Ctrl-D does not end it")
    time.sleep(.05)
text = open(session, "rb").read()
for message in (b"What news\\nfrom Rome?", b"Ay. What news\\nfrom Rome?"):
    if message not in text:
        sys.exit("not a message: %r" % message)
for line in re.findall(r"\n(prompt \d+[^\r\n]*answer[^\r\n]*)", screen):
    if len(line) > 80:
        sys.exit("wide: " + line)
PYTHON
}

task_4() {  # the courses' table of GPT-2: parameters, FLOPs of the full square, shares
  ask count gpt2 gpt2-medium gpt2-large gpt2-xl --ctx 1024
  has "total 124,439,808 354,823,168 774,030,080 1,557,611,200" "full square 292 GFLOP 827 GFLOP 1.77 TFLOP 3.51 TFLOP" \
    "attention proj. 19.88 % 24.93 % 27.23 % 28.71 %" "QK^T and PV 13.25 % 12.46 % 10.89 % 9.19 %" \
    "feed-forward 39.76 % 49.86 % 54.46 % 57.41 %" "head 27.10 % 12.75 % 7.42 % 4.70 %"
}

task_5() {  # gpt-oss-20b's active parameters, and a picture of them, without weights
  ask count gpt-oss-20b --plot --svg svg
  has "active 3.61B holds as active(head), not as" "active(head) 3,608,307,264 17.25 % only the head of these" \
    "X experts 19,116,933,120 2,389,616,640 91.40 %"
  grep -q 'gpt-oss-20b: Parameters by part.*</text>' "$work/svg/parameters.svg" || fail "the picture does not say whose it is"
  grep -q '3,608,307,264' "$work/svg/parameters.svg" || fail "the picture has no active(head)"
}

task_6() {  # does a claim hold?
  ask count Qwen3-30B-A3B --claims active=3.3B
  has "active 3.3B active(all) 3,353,032,704 truncated" "active 3.3B holds as active(all) (truncated), not as active(head), active(none)"
  ask count Qwen3-30B-A3B --claims active=2B
  has "active(none) 2,730,702,848 no: 36.54 % more" "active 2B holds under no convention"
  ask count OLMoE-1B-7B --claims active=3.3B
  has "active 3.3B holds under no convention"
}

task_7() {  # ten models and a laptop of 16 GB
  ask fit Qwen3-0.6B Qwen3-4B Qwen3-8B Qwen3-14B Qwen3-32B Qwen3-30B-A3B gpt-oss-20b Gemma-3-12B Llama-3.1-70B Phi-4 \
    --machine ram=12GB,read=50GB/s
  has "7 of 10 models fit" "8 threads assumed" "Qwen3-8B Q8_0 yes 8.76 GiB 21,632 5.78" "gpt-oss-20b Q5_K_M yes 11.12 GiB" "Llama-3.1-70B Q3_K_M no"
}

task_8() {  # FLOPs and bytes of two mixtures of experts by context, for pandas
  "$tally" count gpt-oss-20b OLMoE-1B-7B --ctx 1k,8k,32k --format csv >"$work/moe.csv" 2>/dev/null || fail "count --format csv"
  tr -d '"' <"$work/moe.csv" | grep -E 'decode FLOPs,all,everything|traffic,decode,bytes a token' >"$out"
  has "gpt-oss-20b,1024,1024,1,f16,decode FLOPs,all,everything,7448869297" "OLMoE-1B-7B,32768,1024,1,f16,decode FLOPs,all,everything," \
    "gpt-oss-20b,8192,1024,1,f16,traffic,decode,bytes a token,3912610560"
  [ "$(wc -l <"$out")" = 12 ] || fail "not 2 models, 3 contexts, 2 figures: $(cat "$out")"
  local python  # one with pandas and matplotlib: the first on the path, or the system's
  for python in python3 /usr/bin/python3 ""; do
    [ -n "$python" ] || skip "pandas or matplotlib is not here; the CSV has the figures"
    if "$python" -c 'import pandas, matplotlib' 2>/dev/null; then break; fi
  done
  (cd "$work" && { echo 'import pandas' && sed -n 's/^    >>> //p' "$root/README.md" && echo 'print(d.to_string())'; } |
    MPLBACKEND=agg "$python" -) >"$out" 2>&1 || fail "$(cat "$out")"
  has "gpt-oss-20b 8192" "OLMoE-1B-7B 32768"
  [ -s "$work/moe.png" ] || fail "README's lines draw no picture"
}

task_9() {  # quantize, and the perplexity of both
  ask quantize demo q8.gguf --type Q8_0
  has "Q8_0, 2.87 MiB of 3.60 MiB"
  ask perplexity demo -f "$root/LICENSE" --save demo.npy
  ask perplexity q8.gguf -f "$root/LICENSE" --against demo.npy
  has "windows of 512 every 256"
  awk '/^same most likely token/ { n = $5 } END { exit !(n > 98) }' "$out" || fail "the two differ: $(cat "$out")"
}

task_10() {  # the page of a run
  ask report demo -n 24 -o report.html
  has "25 steps" "rows compared, all agree"
  cp "$work/report.html" "$out"
  has "4.54M" "mean of depths 16 to 39" "Roofline" "Experts by layer" "</html>"
  ! grep -q 'command: tally' "$out" || fail "the page has its command twice"
}

task_11() {  # docs/library.md's program, with the installed library
  command -v c++ >/dev/null && command -v pkg-config >/dev/null || skip "c++ or pkg-config is not here"
  cmake --install "$build" --prefix "$work/prefix" >"$out" 2>&1 || skip "build/release is not whole: cmake --build --preset release --target install_tree"
  local pc
  pc=$(find "$work/prefix" -name tally.pc)
  sed -n '/^    #include <tally/,/^    }$/p; /^    int main/,/^    }$/p' docs/library.md | sed 's/^    //' >"$work/app.cc"
  # shellcheck disable=SC2046  # pkg-config's words
  c++ -std=c++20 "$work/app.cc" -o "$work/app" $(PKG_CONFIG_PATH=${pc%/*} pkg-config --cflags --libs tally) \
    -Wl,-rpath,"$(dirname "${pc%/*}")" >"$out" 2>&1 || fail "$(head -n 5 "$out")"
  cp models/demo/demo.gguf "$work/model.gguf"
  (cd "$work" && ./app) >"$out" 2>&1 || fail "$(cat "$out")"
  has "touched per decode step 1,595,604" "generated 32 tokens"
}

task_12() {  # audits: the bundled model, and a directory
  ask audit demo --mmu -n 4
  has "parameters stored 117 4,541,364 4,541,364" "1,595,604 of 4,541,364 parameters, 35.13 %, by a decode step" "rows compared, all agree"
  ask synth mini-gpt mini
  ask audit mini --prompt-tokens 1,2,3 -n 2 --full
  has "rows compared, all agree"
}

task_13() {  # what hands that know llama.cpp type, and a document that says what made it
  if (cd "$work" && "$tally") >"$out" 2>&1; then fail "tally alone: exit code 0"; fi
  narrow tally
  has "Usage: tally COMMAND" "list The models on this machine"
  ask run -m demo --n_predict 8 -p "ROMEO:" -ngl 99 -fa on --mlock -ub 512 --temp 0 --top_k 1 -t 0
  has "-ngl is ignored: models run on the CPU" "-ub is ignored: prompts run in pieces" "decode 7 tokens" "-t 0 takes"
  ask help options
  has "--n-predict, --predict" "--tokens" "refused: write --kv TYPE"
  if "$tally" run demo -ctk q8_0 >"$out" 2>&1; then fail "-ctk is taken"; fi
  has "-ctk is not an option here: write --kv TYPE"
  ask count gpt2 --json
  has '"tally": { "version":' '"commit":' "\"date\": \"$(date -u +%Y-%m-%d)\""
  ask fit Qwen3-8B --machine ram=64GB,read=50GB/s
  has "usual Q8_0 8.76 GiB, 5.78 tokens/s; Q4_K_M 5.33 GiB, 9.48 tokens/s"
}

task_14() {  # the models on this machine: a pulled one by its short name, listed and removed
  local cache=$work/pulled commit=0123456789abcdef0123456789abcdef01234567 digest
  local repository=$cache/models--org--Tiny-GGUF
  digest=$(sha256sum models/demo/demo.gguf | cut -d ' ' -f 1)
  mkdir -p "$repository"/{blobs,refs,.tally} "$repository/snapshots/$commit"  # as pull makes it
  cp models/demo/demo.gguf "$repository/blobs/$digest"
  printf %s "$commit" >"$repository/refs/main"
  ln -s "../../blobs/$digest" "$repository/snapshots/$commit/tiny-Q4_K_M.gguf"
  printf '{"sha":"%s","siblings":[{"rfilename":"tiny-Q4_K_M.gguf","size":%s,"lfs":{"sha256":"%s","size":%s}}]}' "$commit" \
    "$(stat -c %s models/demo/demo.gguf)" "$digest" "$(stat -c %s models/demo/demo.gguf)" >"$repository/.tally/$commit.json"
  printf '%s\n' "$digest" >"$repository/.tally/written"
  export HF_HUB_CACHE=$cache HF_HUB_OFFLINE=1
  ask run tiny-gguf -n 4 -p "ROMEO:" -q
  ask ls
  has "name type size last used" "Tiny-GGUF Q4_K_M 3.60 MiB just now"
  ask rm Tiny-GGUF --yes
  has "org/Tiny-GGUF, all of it: removed, 3.60 MiB freed"
  [ ! -e "$repository" ] || fail "it is still there"
  if "$tally" rm models/demo/demo.gguf --yes >"$out" 2>&1; then fail "a file outside of the cache was removed"; fi
  has "is no file of the cache"
}

task_15() {  # chat: settings, another model, the conversation as Markdown
  command -v python3 >/dev/null || skip "python3, which plays the terminal, is not here"
  rm -f "$work/talk.md"
  TERM=xterm python3 - "$tally" "$work/talk.md" "$root/models/demo/demo.gguf" >"$out" <<'PYTHON' || fail "$(cat "$out")"
import os, pty, re, select, sys, time
tally, page, other = sys.argv[1:]
child, terminal = pty.fork()
if child == 0:
    os.execv(tally, [tally, "chat", "-n", "16"])
def say(keys, end):
    seen = ""
    os.write(terminal, keys.encode())
    limit = time.time() + 30
    while not re.search(end, seen):
        if time.time() > limit:
            sys.exit("no %r after %r: %r" % (end, keys, seen[-500:]))
        if select.select([terminal], [], [], .1)[0]:
            seen += os.read(terminal, 4096).decode("utf-8", "replace")
say("", r"Ctrl-D ends")
say("/set temperature 0\r", r"(?s)temperature +0 .*> ")
say("What news?\r", r"(?s)answer \d+ at.*> ")
say("/model " + other + "\r", r"(?s)a context of 1,024 tokens.*> ")
say("And you?\r", r"(?s)answer \d+ at.*> ")
say("/show\r", r"(?s)by 4 messages.*temperature +0 .*> ")
say("/save " + page + "\r", r"(?s)saved: .*> ")
os.write(terminal, b"\x04")
PYTHON
  cp "$work/talk.md" "$out"
  has "## user What news? ## assistant" "## user And you? ## assistant"
}

task_16() {  # two models in one server: names choose, the budget holds, and bills name the model
  command -v curl >/dev/null || skip "curl is not here"
  cp models/demo/demo.gguf "$work/other.gguf"
  "$tally" serve demo second="$work/other.gguf" --memory 20MB --port 0 --json >"$work/serving" 2>"$work/log_of_server" &
  local server=$! url=""
  # shellcheck disable=SC2064  # this server
  trap "kill $server 2>/dev/null || true" EXIT
  for _ in $(seq 100); do
    url=$(sed -n 's/.*"url": "\(.*\)".*/\1/p' "$work/serving")
    if [ -n "$url" ]; then break; fi
    sleep .1
  done
  [ -n "$url" ] || fail "$(cat "$work/log_of_server")"
  local model
  for model in demo second demo; do
    curl -s "$url/v1/completions" -d '{"model": "'$model'", "prompt": "ROMEO:", "max_tokens": 4, "tally": true}' >"$out"
    has "\"tally\":{\"model\":\"$model\""
  done
  curl -s "$url/v1/models" >"$out"
  has '"id":"demo"' '"status":{"value":"loaded"}' '"id":"second"' '"status":{"value":"unloaded"}'
  curl -s "$url/v1/completions" -d '{"model": "third", "prompt": "ROMEO:"}' >"$out"
  has "model_not_found" "'demo', 'second' are served"
  curl -s "$url/v1/embeddings" -d '{}' >"$out"
  has "this server has no embeddings"
  curl -s "$url/slots" >"$out"
  has '"id":3' '"is_processing":false'
  kill $server
  wait $server || fail "the server ended with $?: $(tail -n 3 "$work/log_of_server")"
  trap - EXIT
}

task_17() {  # npm's ollama client, with a server on a socket too, and behind a prefix
  command -v npm >/dev/null && command -v node >/dev/null && command -v curl >/dev/null || skip "node, npm or curl is not here"
  (cd "$work" && npm install --no-audit --no-fund --ignore-scripts ollama@0.6.4) >"$out" 2>&1 || skip "npm cannot install: $(tail -n 1 "$out")"
  "$tally" serve demo --port 0 --path-prefix /llm --json >"$work/serving" 2>"$work/log_of_server" &
  local server=$!
  "$tally" serve demo --unix-socket "$work/socket" 2>"$work/log_of_socket" &
  local other=$! url=""
  # shellcheck disable=SC2064  # these servers
  trap "kill $server $other 2>/dev/null || true" EXIT
  for _ in $(seq 100); do
    url=$(sed -n 's/.*"url": "\(.*\)".*/\1/p' "$work/serving")
    if [ -n "$url" ] && [ -S "$work/socket" ] && grep -q serving "$work/log_of_socket"; then break; fi
    sleep .1
  done
  [ -n "$url" ] || fail "$(cat "$work/log_of_server")"
  cat >"$work/ollama.mjs" <<'NODE'
import {Ollama} from "ollama";
const ollama = new Ollama({host: process.argv[2]});
const {models: [{name}]} = await ollama.list();
const body = {model: name, messages: [{role: "user", content: "Ay?"}], options: {seed: 1, num_predict: 6}};
const whole = await ollama.chat(body);
let text = "";
for await (const part of await ollama.chat({...body, stream: true})) text += part.message.content;
console.log(name, text === whole.message.content, whole.eval_count);
NODE
  node "$work/ollama.mjs" "$url" >"$out" 2>&1 || fail "$(cat "$out")"
  has "demo:latest true 6"
  curl -s "${url%/llm}/api/tags" >"$out"
  has "all paths begin with /llm/"
  curl -s --unix-socket "$work/socket" http://localhost/api/generate -d '{"prompt": "Ay?", "stream": false, "options": {"num_predict": 4}}' >"$out"
  has '"eval_count":4' '"done_reason":"length"'
  kill $server $other
  wait $server && wait $other || fail "a server ended with $?: $(tail -n 3 "$work/log_of_server" "$work/log_of_socket")"
  [ ! -e "$work/socket" ] || fail "the socket is still there"
  trap - EXIT
}

names=("" "demo.sh on a bare system" "a GGUF file generates text" "chat: paste, history, cursor" "the table of GPT-2" "gpt-oss-20b: active, a picture"
  "does 3.3B active hold?" "ten models, a laptop of 16 GB" "FLOPs and bytes for pandas" "quantize, perplexity" "the page of a run" "the library's example" "audits"
  "llama.cpp's options, documents" "list, rm, short names" "chat: settings, models, Markdown" "two models in one server" "npm's ollama, a socket, a prefix")
last=$((${#names[@]} - 1))
# shellcheck disable=SC2046  # numbers
if [ $# -eq 0 ]; then set -- $(seq 2 $last); fi
failed=0
for n in "$@"; do
  [[ $n =~ ^[0-9]+$ ]] && [ "$n" -ge 1 ] && [ "$n" -le $last ] || die "first_hour.sh: tasks are 1 to $last, not $n"
  begin=$SECONDS
  set +e
  (
    set -e
    "task_$n"
  ) >"$work/log" 2>&1
  rc=$?
  set -e
  what=ok
  if [ $rc = 77 ]; then what=$(tail -n 1 "$work/log"); elif [ $rc -ne 0 ]; then what=FAILED failed=1; fi
  printf '%2d  %-32s %3d s  %s\n' "$n" "${names[$n]}" $((SECONDS - begin)) "$what"
  if [ "$what" = FAILED ]; then tail -n 30 "$work/log" | sed 's/^/      /' >&2; fi
done
exit $failed
