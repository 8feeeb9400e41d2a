# SPDX-License-Identifier: Apache-2.0
# Writes pydantic.json: twenty tools as people declare them, their schemas as pydantic 2.13 prints them, documents that it takes and not.
# usage: python3 tests/schemas/pydantic_tools.py >tests/schemas/pydantic.json
import json
import uuid
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Optional, TypeVar, Union
from pydantic import (AnyUrl, BaseModel, ConfigDict, Field, HttpUrl, JsonValue, RootModel, StringConstraints, TypeAdapter,
                      ValidationError, conlist)

out = []
def tool(model, good, bad, name=None):
    ta = TypeAdapter(model)
    for g in good: ta.validate_json(json.dumps(g))
    for b in bad:
        try: ta.validate_json(json.dumps(b))
        except ValidationError: continue
        raise AssertionError(f"pydantic takes {b}")
    out.append({"name": name or model.__name__, "schema": ta.json_schema(), "good": good, "bad": bad})

class Unit(str, Enum):
    c = "celsius"; f = "fahrenheit"
class Weather(BaseModel):
    """Current weather of a place."""
    city: str = Field(description="City and country", examples=["Rome, Italy"])
    unit: Unit = Unit.c
    days: int = Field(default=1, ge=1, le=14)
tool(Weather, [{"city": "Rome"}, {"city": "Rome", "unit": "celsius", "days": 14}], [{"unit": "celsius"}, {"city": "Rome", "days": 15},
    {"city": "Rome", "unit": "kelvin"}])

class Search(BaseModel):
    query: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    site: Optional[str] = None
    limit: Annotated[int, Field(gt=0, lt=101)] = 10
    safe: bool = True
    languages: list[Annotated[str, StringConstraints(pattern=r"^[a-z]{2}(-[A-Z]{2})?$")]] = Field(default_factory=list, max_length=5)
tool(Search, [{"query": "x", "site": None}, {"query": "x", "limit": 100, "languages": ["de", "pt-BR"]}], [{"query": ""}, {"query": "x",
    "limit": 101}, {"query": "x", "languages": ["DE"]}])

class Attendee(BaseModel):
    name: str
    email: Annotated[str, Field(json_schema_extra={"format": "email"})]
    required: bool = True
class CalendarEvent(BaseModel):
    model_config = ConfigDict(extra="forbid")
    title: str
    start: datetime
    end: datetime
    all_day: bool = False
    attendees: list[Attendee] = []
    recurrence: Literal["daily", "weekly", "monthly"] | None = None
    remind: timedelta | None = None
tool(CalendarEvent, [{"title": "a", "start": "2024-02-29T10:00:00Z", "end": "2024-02-29T11:00:00+01:00", "attendees": [{"name": "x",
    "email": "x@y.z"}], "recurrence": "weekly", "remind": "PT15M"}],
     [{"title": "a", "start": "2024-02-30T10:00:00Z", "end": "2024-02-29T11:00:00Z"}, {"title": "a", "start": "2024-02-29T10:00:00Z",
         "end": "2024-02-29T11:00:00Z", "where": "x"}, {"title": "a", "start": "2024-02-29T10:00:00Z", "end": "2024-02-29T11:00:00Z",
         "recurrence": "yearly"}])

class Email(BaseModel):
    to: conlist(str, min_length=1, max_length=20)
    cc: list[str] | None = None
    subject: str = Field(max_length=78)
    body: str
    priority: Literal["low", "normal", "high"] = "normal"
    headers: dict[str, str] = {}
tool(Email, [{"to": ["a"], "subject": "s", "body": "line\nline", "headers": {"X-A": "b"}}], [{"to": [], "subject": "s", "body": ""},
    {"to": ["a"], "subject": "s", "body": "", "headers": {"a": 1}}])

class Sql(BaseModel):
    query: str = Field(pattern=r"^(SELECT|WITH)\s[\s\S]*$")
    parameters: list[str | int | float | bool | None] = []
    timeout: float = Field(default=30, gt=0, le=600)
tool(Sql, [{"query": "SELECT 1", "parameters": ["a", 1, 1.5, True, None], "timeout": 0.5}], [{"query": "DROP TABLE x"},
    {"query": "SELECT 1", "timeout": 0}, {"query": "SELECT 1", "parameters": [{}]}])

class Replace(BaseModel):
    kind: Literal["replace"]; old: str; new: str; all: bool = False
class Insert(BaseModel):
    kind: Literal["insert"]; line: int = Field(ge=0); text: str
class Delete(BaseModel):
    kind: Literal["delete"]; first: int; last: int
class FileEdit(BaseModel):
    path: Path
    edits: list[Annotated[Union[Replace, Insert, Delete], Field(discriminator="kind")]] = Field(min_length=1)
tool(FileEdit, [{"path": "a/b", "edits": [{"kind": "replace", "old": "x", "new": ""}, {"kind": "insert", "line": 0, "text": "t"}]}],
    [{"path": "a", "edits": []}, {"path": "a", "edits": [{"kind": "move", "line": 1}]}, {"path": "a", "edits": [{"kind": "insert",
    "line": -1, "text": ""}]}])

class Shell(BaseModel):
    command: list[str] = Field(min_length=1)
    cwd: str | None = Field(default=None, pattern="^/")
    env: dict[Annotated[str, StringConstraints(pattern="^[A-Z_][A-Z0-9_]*$")], str] | None = None
    timeout_ms: int | None = Field(None, ge=1, le=600000, multiple_of=100)
tool(Shell, [{"command": ["ls"], "cwd": "/tmp", "env": {"PATH": "/bin"}, "timeout_ms": 1500}], [{"command": ["ls"], "cwd": "tmp"},
    {"command": ["ls"], "timeout_ms": 150}, {"command": []}])

class Item(BaseModel):
    sku: str = Field(pattern=r"^[A-Z]{3}-\d{4}$")
    quantity: int = Field(gt=0)
    price: Decimal = Field(max_digits=8, decimal_places=2)
class Cart(BaseModel):
    customer: uuid.UUID
    items: list[Item]
    coupon: Annotated[str, StringConstraints(to_upper=True, min_length=4)] | None = None
    total: Decimal
tool(Cart, [{"customer": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "items": [{"sku": "ABC-1234", "quantity": 2, "price": "19.99"}],
    "total": 39.98}], [{"customer": "f81d4fae", "items": [], "total": 1}, {"customer": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
    "items": [{"sku": "AB-1", "quantity": 1, "price": 1}], "total": "1"}, {"customer": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
    "items": [], "total": "x"}])

class Priority(IntEnum):
    low = 1; high = 2; urgent = 3
class Ticket(BaseModel):
    title: Annotated[str, Field(min_length=3, max_length=80)]
    priority: Priority = Priority.low
    labels: set[Literal["bug", "feature", "docs", "question"]] = set()
    due: date | None = None
    estimate: float | None = Field(default=None, ge=0, allow_inf_nan=False)
tool(Ticket, [{"title": "abc", "priority": 3, "labels": ["bug", "docs"], "due": "2024-02-29"}], [{"title": "ab"}, {"title": "abc",
    "priority": 4}, {"title": "abc", "due": "2023-02-29"}])
# A set of pydantic takes repeated values; its schema does not.
out[-1]["bad"].append({"title": "abc", "labels": ["bug", "bug"]})

class Comment(BaseModel):
    author: str
    text: str
    likes: int = Field(0, ge=0)
    replies: list["Comment"] = []
tool(Comment, [{"author": "a", "text": "b", "replies": [{"author": "c", "text": "d", "replies": [{"author": "e", "text": "f",
    "likes": 2}]}]}], [{"author": "a", "text": "b", "replies": [{"author": "c"}]}, {"author": "a", "text": "b", "likes": -1}])

class Tree(BaseModel):
    value: int
    left: Optional["Tree"] = None
    right: Optional["Tree"] = None
tool(Tree, [{"value": 1, "left": {"value": 2, "left": None, "right": {"value": 3}}}], [{"value": 1, "left": {}}, {"left": None}])

T = TypeVar("T")
class Page(BaseModel, Generic[T]):
    items: list[T]
    next: str | None
    total: int = Field(ge=0)
class User(BaseModel):
    id: int
    name: str
    born: date
    roles: list[Literal["admin", "editor", "reader"]]
tool(Page[User], [{"items": [{"id": 1, "name": "x", "born": "2000-01-01", "roles": ["admin"]}], "next": None, "total": 1}], [{"items": [],
    "total": 0}, {"items": [{"id": 1, "name": "x", "born": "2000-13-01", "roles": []}], "next": None, "total": 1}], name="Page")

class Cat(BaseModel):
    pet: Literal["cat"]; indoor: bool
class Dog(BaseModel):
    pet: Literal["dog"]; breed: str | None = None
class Animal(RootModel[Annotated[Union[Cat, Dog], Field(discriminator="pet")]]): pass
tool(Animal, [{"pet": "cat", "indoor": True}, {"pet": "dog"}], [{"pet": "cat"}, {"pet": "cow"}, {}])

class Point(BaseModel):
    coordinates: tuple[float, float]
    altitude: float | None = None
class Route(BaseModel):
    start: Point; stops: list[Point] = Field(max_length=8); end: Point
    mode: Literal["walk", "drive", "transit"] = "drive"
    depart: time | None = None
tool(Route, [{"start": {"coordinates": [1.5, -2]}, "stops": [], "end": {"coordinates": [0, 0], "altitude": 10.5}, "depart": "10:30:00Z"}],
    [{"start": {"coordinates": [1.5]}, "stops": [], "end": {"coordinates": [0, 0]}}, {"start": {"coordinates": [1, 2, 3]}, "stops": [],
    "end": {"coordinates": [0, 0]}}])

class HttpRequest(BaseModel):
    method: Literal["GET", "POST", "PUT", "DELETE"]
    url: HttpUrl
    headers: dict[str, str | list[str]] | None = None
    body: JsonValue = None
    retries: int = Field(default=0, ge=0, le=5)
tool(HttpRequest, [{"method": "GET", "url": "https://example.com/a?b=c"}, {"method": "POST", "url": "http://x.y", "headers": {"a": ["b"]},
    "body": {"x": [1, None]}}], [{"method": "get", "url": "https://example.com"}, {"method": "GET", "url": "no uri"}, {"method": "GET",
    "url": "https://example.com", "retries": 6}])

class Host(BaseModel):
    address: IPv4Address | IPv6Address
    port: int = Field(ge=1, le=65535)
    tags: dict[str, str] = Field(default_factory=dict, max_length=4)
tool(Host, [{"address": "10.0.0.1", "port": 80}, {"address": "::1", "port": 65535, "tags": {"a": "b"}}], [{"address": "10.0.0",
    "port": 80}, {"address": "::1", "port": 65536}])

class Invoice(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"number": "2024-0001"}]})
    number: str = Field(pattern=r"^\d{4}-\d{4,6}$", alias="invoiceNumber")
    issued: date
    currency: Literal["EUR", "USD", "GBP"]
    lines: list[tuple[str, int, Decimal]]
    paid: bool
    note: str | None = Field(None, deprecated=True, max_length=1000)
tool(Invoice, [{"invoiceNumber": "2024-00001", "issued": "2024-01-01", "currency": "EUR", "lines": [["a", 1, "2.50"]], "paid": False}],
    [{"invoiceNumber": "24-1", "issued": "2024-01-01", "currency": "EUR", "lines": [], "paid": True}, {"invoiceNumber": "2024-0001",
    "issued": "2024-01-01", "currency": "CHF", "lines": [], "paid": True}])

class Answer(BaseModel):
    reasoning: str
    answer: int | float | str | bool
    confidence: float = Field(ge=0, le=1)
    sources: list[AnyUrl] = []
    extra: Any = None
tool(Answer, [{"reasoning": "r", "answer": "x", "confidence": 0.25, "sources": ["https://a.b"], "extra": [1]}], [{"reasoning": "r",
    "answer": None, "confidence": 0.25}, {"reasoning": "r", "answer": 1, "confidence": 1.5}])

class Entity(BaseModel):
    text: str; label: Literal["PER", "ORG", "LOC"]; span: Annotated[tuple[int, int], Field(description="start, end")]
class Extraction(BaseModel):
    entities: list[Entity]
    relations: list[tuple[int, Literal["works_for", "lives_in"], int]] = []
    language: str = Field(min_length=2, max_length=2)
tool(Extraction, [{"entities": [{"text": "Rome", "label": "LOC", "span": [0, 4]}], "relations": [[0, "lives_in", 1]], "language": "en"}],
    [{"entities": [{"text": "Rome", "label": "X", "span": [0, 4]}], "language": "en"}, {"entities": [], "language": "eng"}])

class And(BaseModel):
    op: Literal["and"] = "and"; all: list["Filter"]
class Not(BaseModel):
    op: Literal["not"] = "not"; filter: "Filter"
class Compare(BaseModel):
    op: Literal["=", "<", ">"]; field: str; value: str | float
class Filter(RootModel[Union[And, Not, Compare]]): pass
class Query(BaseModel):
    table: str; where: Filter | None = None; order: list[str] = []; limit: int | None = None
for m in (And, Not, Filter, Query): m.model_rebuild()
tool(Query, [{"table": "t", "where": {"op": "and", "all": [{"op": "not", "filter": {"op": "=", "field": "a", "value": 1}}]}}],
    [{"table": "t", "where": {"op": "xor"}}, {"table": "t", "where": {"op": "not"}}])
print("[\n" + ",\n".join(json.dumps(o, separators=(",", ":")) for o in out) + "\n]")
