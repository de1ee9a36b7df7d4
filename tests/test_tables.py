"""Tables of users in every form that people have: read right, or an error that shows the option."""

import bz2
import gzip
import json
import lzma
import re
from collections import Counter

import pandas as pd
import pytest
from data_files import histories

from softbench import datasets
from softbench.datasets import prepare_app, roles
from softbench.datasets.lines import DataFileError

T = 1_600_000_000
# User a has x, then y twice with another event of z between; b has them in another order.
ROWS = [("a", "z", T + 2), ("b", "x", T), ("a", "x", T), ("b", "z", T + 9), ("a", "y", T + 1)]
ROWS += [("b", "y", T + 4), ("a", "y", T + 3)]
BY_TIME = {"a": ["x", "y", "z", "y"], "b": ["x", "y", "z"]}
LISTS = [("a", ["x", "y", "z", "y"]), ("b", ["x", "y", "z"])]
FRAME = pd.DataFrame(ROWS, columns=["user_id", "item_id", "timestamp"])
HEAD = "user_id,item_id,timestamp"
LINES = [f"{u},{i},{t}" for u, i, t in ROWS]


def text(*lines, start=""):
    """The bytes of a text file."""
    return (start + "\n".join(lines) + "\n").encode()


def csv_of(row, head=""):
    """A text with a line for each event, and perhaps a header."""
    return text(*([head] if head else []), *(row(u, i, t) for u, i, t in ROWS))


def dates(form):
    """The times of `ROWS` a day apart, from the 13th on, in a format."""
    return lambda u, i, t: f"{u},{i},{pd.Timestamp(2020, 9, 13 + t - T).strftime(form)}"


def parquet(frame):
    """What writes a frame."""
    return lambda path: frame.to_parquet(path)


FORMS = {
    "header": (text(HEAD, *LINES), {}),
    "no header": (text(*LINES), {}),
    "byte order mark": (text(HEAD, *LINES, start="\ufeff"), {}),
    "byte order mark, no header": (text(*LINES, start="\ufeff"), {}),
    "windows lines and blank ones": (text(HEAD, "", *LINES).replace(b"\n", b"\r\n"), {}),
    "gzip": (gzip.compress(text(HEAD, *LINES)), {}),
    "xz": (lzma.compress(text(HEAD, *LINES)), {}),
    "bz2": (bz2.compress(text(HEAD, *LINES)), {}),
    "usual names": (csv_of("{},{},5,{}".format, "Customer ID,product-id,stars,When"), {}),
    "RecBole": (csv_of("{}\t{}\t{}".format, "user_id:token\titem_id:token\ttimestamp:float"), {}),
    "names": (text("who,what,at", *LINES), {"columns": "who,what,at"}),
    "names in another order": (
        csv_of(lambda u, i, t: f'{t},{u},"{i}"', "at,who,what"),
        {"columns": "who,what,at"},
    ),
    "numbers skip the header": (
        csv_of(lambda u, i, t: f"{u},{i},5,{t}", "a,b,c,d"),
        {"columns": "0,1,3"},
    ),
    "numbers": (csv_of("{}::{}::5::{}".format), {"columns": "0,1,3"}),
    "MovieLens": (csv_of("{}::{}::{}".format), {}),
    "tabs": (csv_of("{}\t{}\t{}".format), {}),
    "bars": (csv_of("{}|{}|{}".format), {}),
    "blanks": (csv_of("{} {}  {}".format), {}),
    "small times are named": (csv_of(lambda u, i, t: f"{u},{i},{t - T}"), {"columns": "0,1,2"}),
    "ISO dates": (csv_of(dates("%Y-%m-%dT%H:%M:%S")), {}),
    "US dates": (csv_of(dates("%m/%d/%Y %H:%M")), {}),
    "German dates": (csv_of(dates("%d.%m.%Y")), {}),
    "a format": (csv_of(dates("%y%d%m"), HEAD), {"date_format": "%y%d%m"}),
    "JSON lines": (FRAME.to_json(orient="records", lines=True).encode(), {}),
    "JSON lists": (text(*(json.dumps({"user": u, "items": i}) for u, i in LISTS)), {}),
    "a user a line": (text("a x y z y", "", "b x y z"), {}),
    "Parquet": (parquet(FRAME), {}),
    "Parquet, dates": (
        parquet(FRAME.assign(timestamp=pd.to_datetime(FRAME.timestamp, unit="s"))),
        {},
    ),
    "Parquet, index of users": (parquet(FRAME.set_index("user_id")), {}),
    "Parquet, index of numbers": (parquet(FRAME.sample(frac=1, random_state=1)), {}),
    "Parquet, bytes": (parquet(FRAME.assign(item_id=FRAME.item_id.str.encode("utf-8"))), {}),
    "Parquet, lists": (parquet(pd.DataFrame(LISTS, columns=["user", "items"])), {}),
    "Parquet, lists and times": (parquet(FRAME.groupby("user_id").agg(list).reset_index()), {}),
}


def write(folder, content):
    """A file without an ending: what it is follows from its content."""
    path = folder / "events"
    path.write_bytes(content) if isinstance(content, bytes) else content(path)
    return path


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.filterwarnings("ignore:interactions. repaired")
def test_every_form_gives_the_same_histories(tmp_path, form):
    content, options = FORMS[form]
    path = write(tmp_path, content)
    assert histories(datasets.load("interactions", data_dir=path, **options)) == BY_TIME


def test_names_are_as_in_the_file(tmp_path):
    """Quoted separators and line breaks, zeros in front; whole numbers in a column of floats."""
    lines = [f'{u},"{i}, 0\nlarge",{t}' for u, i, t in ROWS]
    path = write(tmp_path, text(HEAD, *lines))
    data = datasets.load("interactions", data_dir=path)
    assert sorted(data.items) == ["x, 0 large", "y, 0 large", "z, 0 large"]
    lines = [f"00{'ab'.index(u)};{i}, red;{t}" for u, i, t in ROWS]
    data = datasets.load("interactions", data_dir=write(tmp_path, text(*lines)))
    assert data.users == ["000", "001"] and "x, red" in data.items
    frame = FRAME.assign(user_id=[float("ab".index(u)) for u, _, _ in ROWS])
    data = datasets.load("interactions", data_dir=write(tmp_path, frame.to_parquet))
    assert data.users == ["0", "1"]


OTHER = [f"{u},{i},5,{t}" for u, i, t in ROWS]
ERRORS = {
    "empty": (b"", {}, ":1: the file must hold rows"),
    "header alone": (text(HEAD), {}, "must hold rows"),
    "other names": (text("who,what,at", *LINES), {}, ":1: say which .*`columns=who,what,at`"),
    "other names, blanks in them": (
        text("my who,what,at", *LINES),
        {},
        "`columns='my who,what,at'`",
    ),
    "other names, no time": (
        csv_of("{},{},5".format, "who,what,stars").replace(b",5", b""),
        {},
        "`columns=who,what`",
    ),
    "a rating": (csv_of("{0},{1},5".format), {}, "`columns=0,1`, or `columns=0,1,2` if the last"),
    "four fields": (
        text(*OTHER),
        {},
        ":1: say which columns are user, item, time, as in `columns=0,1,3`",
    ),
    "names that are not there": (
        text(HEAD, *LINES),
        {"columns": "who,what"},
        "`columns` must be names, .* not who,what",
    ),
    "a number that is not there": (text(*LINES), {"columns": "0,5"}, "numbers below 3"),
    "a short row": (
        text(*LINES, "a,y"),
        {},
        ":8: a row must have user, item and time .`missing=drop`",
    ),
    "a long row": (text(*LINES, "a,y,1,2"), {}, ":8: rows must have as many fields"),
    "no item": (text(HEAD, *LINES, f"a,,{T}"), {}, ":9: a row must have .*Received: a, , 16"),
    "a user called nan": (text(HEAD, f"nan,x,{T}", *LINES), {}, ":2: a row must have user"),
    "Parquet, no user": (
        parquet(FRAME.replace({"user_id": {"b": None}})),
        {},
        r"events: row 2: a row must.*such rows: 3",
    ),
    "Parquet, other names": (
        parquet(FRAME.set_axis(["who", "what", "at"], axis=1)),
        {},
        "`columns=who,what,at`",
    ),
    "no time": (text(HEAD, *LINES, "a,x,soon"), {}, ":9: a time must be a finite number.*soon"),
    "no date": (csv_of(dates("%Y-%m-%d"), HEAD) + b"a,x,soon\n", {}, ":9: a time must be .*soon"),
    "infinite": (text(HEAD, *LINES, "a,x,inf"), {}, ":9: a time must be a finite number.*inf"),
    "day or month": (
        csv_of(lambda u, i, t: f"{u},{i},05/0{1 + t - T}/2020", HEAD),
        {},
        ":2: day or month may come first: `date_format=%m/%d/%Y` or `date_format=%d/%m/%Y`",
    ),
    "day and month": (
        csv_of(dates("%d/%m/%Y"), HEAD) + b"a,x,09/14/2020\n",
        {},
        ":2: day or month may come first",
    ),
    "another format": (csv_of(dates("%Y-%m-%d")), {"date_format": "%d"}, "`date_format=%d`"),
    "two lines of a user": (
        text("a x y", "b z", "a z"),
        {},
        ":3: each user must have one .*`layout=columns`",
    ),
    "no JSON": (text('{"user": 1, "item": 2}', "{"), {}, ":2: each line must be one JSON object"),
    "JSON in JSON": (text('{"user": {"id": 1}, "item": 2}'), {}, ":1: user must be a text or a"),
    "a JSON array": (text('[{"user": 1, "item": 2}]'), {}, "one object a line"),
    "Excel": (b"PK\x03\x04 and more", {}, "an Excel workbook"),
    "Latin-1": (
        text(HEAD, *LINES, "ä,x,1").decode().encode("latin-1"),
        {},
        ":9: the text must be UTF-8",
    ),
    "cut off": (gzip.compress(text(HEAD, *LINES))[:-9], {}, "the compressed file must be whole"),
    "an open quote": (text(HEAD, *LINES, '"a,x,1'), {}, ":9: .*quotes must end"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_names_the_row_and_the_option(tmp_path, case):
    content, options, words = ERRORS[case]
    path = write(tmp_path, content)
    with pytest.raises(DataFileError, match=words) as error:
        datasets.load("interactions", data_dir=path, **options)
    assert str(error.value).startswith(str(path)) and "Received: " in str(error.value)


def test_a_row_is_named_by_its_line_behind_quoted_line_breaks(tmp_path):
    path = write(tmp_path, text(HEAD, f'a,"x\nx\nx",{T}', f",y,{T}"))
    with pytest.raises(DataFileError, match=r"events:5: a row must have"):
        datasets.load("interactions", data_dir=path)


def test_duplicates_and_rows_without_a_value_are_dropped_and_counted(tmp_path, capsys):
    """Doubled, the file gives what it gave; so that no event is both validation and test."""
    path = write(tmp_path, text(HEAD, *LINES, *LINES, ",x,1", "a,None,1", f"c,y,{T}", f"c,w,{T}"))
    line = ["", "--dataset=interactions", f"--data_dir={path}", f"--out={tmp_path / 'out'}"]
    assert prepare_app.main([*line, "--option=missing=drop", "--option=columns=0,1,2"]) == 0
    assert capsys.readouterr().out.splitlines()[:4] == [
        "holds: 2 users, 3 items, 7 events",
        "dropped: 2 rows without a value; 7 duplicates of other rows; "
        "1 events of items seen less than 2 times; 1 events of users with less than 3",
        "columns: user = user_id, item = item_id, time = timestamp (numbers); CSV with commas",
        "split: 3 train, 2 valid, 2 test; the last event of each user is the test, the one before "
        "it for validation",
    ]
    assert histories(datasets.load("interactions", data_dir=tmp_path / "out")) == BY_TIME


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"columns": (0, 1)}, r"`columns` must be names or numbers .*Received: \(0, 1\)"),
        ({"columns": "user_id"}, "as 'user,item,time' or '0,1'"),
        ({"columns": "0,0"}, "`columns` must be .* different columns"),
        ({"missing": "keep"}, "`missing` must be one of: error, drop"),
        ({"layout": "x"}, "`layout` must be one of: auto, columns, lines"),
    ],
)
def test_wrong_options(tmp_path, options, words):
    with pytest.raises(ValueError, match=words):
        datasets.load("interactions", data_dir=write(tmp_path, text(HEAD, *LINES)), **options)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    path = write(tmp_path, parquet(FRAME))
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'softbench[data]'")):
        datasets.load("interactions", data_dir=path)


def test_lists_of_items(tmp_path):
    path = write(tmp_path, b"u a\nv\nw b a\n")

    def read():
        return roles.read_columns(path, (roles.USER, roles.ITEM), Counter(), layout="lines")

    rows, _ = read()
    assert rows.to_numpy().tolist() == [["u", "a"], ["w", "b"], ["w", "a"]]
    path.write_text("u a\nv b\nu c\n")
    with pytest.raises(DataFileError, match=r"events:3: each user must have one line.*'u'"):
        read()


TRIPLES = [("a", "r", "b"), ("c", "r", "b"), ("a", "s", "c"), ("b", "s", "d")]


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (text(*map(",".join, TRIPLES)), {}),
        (text(*map("\t".join, TRIPLES), "", "\t".join(TRIPLES[0])), {}),
        (text("Subject;predicate;object", *map(";".join, TRIPLES)), {}),
        (text("x,y,z", *(f"{t},{h},{r}" for h, r, t in TRIPLES)), {"columns": "y,z,x"}),
        (text(*(f"{r}|5|{h}|{t}" for h, r, t in TRIPLES)), {"columns": "2,0,3"}),
        (text(*(f"{h} {r} {t}" for h, r, t in TRIPLES)), {}),
        (parquet(pd.DataFrame(TRIPLES, columns=["head", "relation", "tail"])), {}),
    ],
)
@pytest.mark.filterwarnings("ignore:triples. repaired")
def test_triples_in_every_form(tmp_path, content, options):
    path = write(tmp_path, content)
    data = datasets.load("triples", data_dir=path, **options)
    rows = [row for split in datasets.SPLITS for row in data.split(split)]
    named = [(data.entities[h], data.relations[r], data.entities[t]) for h, r, t in rows]
    assert sorted(named) == sorted(TRIPLES)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (text("a,r,b", "a,b"), ":2: a row must have head, relation and tail"),
        (text("a,r,b", "", "a,,b"), ":3: a row must have head, relation and tail"),
        (
            text("a,r,b,q,v"),
            ":1: say which columns are head, relation, tail, as in `columns=0,1,2`",
        ),
        (b"", ":1: the file must hold rows"),
        (b"\n \n", ":1: the file must hold rows"),
    ],
)
def test_malformed_triples(tmp_path, content, words):
    with pytest.raises(DataFileError, match=words):
        datasets.load("triples", data_dir=write(tmp_path, content))
