"""Suites: runs of several configs, one after the other, by one command. Needs no Keras.

    softbench --suite=accelerator --minutes=9
    softbench --suite=2026.1 --data_dir=<data>

A call shares its minutes among the runs, begins none in the last tenth, and packs all records so
far into one file, `<suite>.tar.gz` in the folder above those of the runs. The next call goes on
where it was; on another machine, with that file alone, it has the finished cells, and one that was
cut off begins anew. Flags that are not of the suite are given to each run.

The second suite is the version in `softbench/suite.toml`: it leaves out what the data at hand do
not allow, measures prices before it trains, and fixes all flags of configs but seeds and methods.
"""

import io
import json
import re
import shlex
import sys
import tarfile
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from absl import flags

from softbench import commands
from softbench.bench import records, suite_version
from softbench.commands import ConfigError

_ACCELERATOR = "--config.preset=accelerator --checkpoint_minutes=1"
# {suite: {folder of the results: the flags of a run}}, in the order in which they run. What needs
# no data comes first.
SUITES = {
    "accelerator": {
        "full_softmax": f"--config=full_softmax {_ACCELERATOR}",
        "scaling": f"--config=scaling {_ACCELERATOR}",
        "wall_time": f"--config=wall_time {_ACCELERATOR}",
        "xmc_scale": f"--config=xmc_scale {_ACCELERATOR}",
        "large_vocabulary": f"--config=large_vocabulary {_ACCELERATOR}",
        "ptb_equal_time": f"--config=ptb_rff:equal_time {_ACCELERATOR}",
        "sequences": f"--config=sequences {_ACCELERATOR}",
        "ptb_rff": f"--config=ptb_rff {_ACCELERATOR}",
        "ptb_nce": f"--config=ptb_nce {_ACCELERATOR}",
    },
    suite_version.NAME: suite_version.lines_of_runs(),
}
_NONE_CHOSEN = "it has none of --config.methods"
OUT_OF_TIME = 3  # exit status when `--minutes` are over and something is left
_LARGEST = 1 << 26  # bytes of a file in a pack: the largest record here has 40 kB
_PACKED = re.compile(rf"[\w-][\w.-]*/({records.PLAN}|(runs|price)/[^./\x00][^/\x00]*\.json)")


def run(
    argv: list[str],
    softbench: Callable[[list[str]], int],
    configured: Callable[[list[str]], dict],
    show: Callable[[Path], None],
) -> int:
    """Runs the suite of a command line; returns the exit status.

    Args:
        argv: the program's name and its flags, `--suite` among them.
        softbench: runs a command line of one config; returns its exit status.
        configured: command line -> its checked config.
        show: called at the end with the folder of a version's results.
    """
    values, others = _parse(argv)
    if any(argument.startswith("--config=") for argument in others):
        raise ConfigError("--suite does not go with --config, of which it has several.")
    is_version = values.suite == suite_version.NAME
    if is_version:
        others, methods = suite_version.chosen(others)
    workdir = Path(values.workdir or f"suite_results/{values.suite}")
    pack, end = workdir / f"{values.suite}.tar.gz", time.monotonic() + 60 * values.minutes
    if pack.exists():
        print(f"{pack}: {unpack(pack, workdir)} files taken up", flush=True)
    status = 0
    for name, line in SUITES[values.suite].items():
        command = ["softbench", *line.split(), *others, f"--workdir={workdir / name}"]
        print(f"--- {name}", flush=True)
        lines = [command]
        if is_version:
            made = suite_version.cells(name, configured(command))
            why = suite_version.lacking(made, values.data_dir) if methods[name] else _NONE_CHOSEN
            if why:
                print(f"softbench: {name} is left out: {why}", file=sys.stderr, flush=True)
            command.append(f"--config.methods={methods[name]}")
            lines = [] if why else [[*command, "--price"], command]
        for own in lines:
            ended = _run(softbench, [*own, *_rest(values.minutes, end)])
            status = max(status, ended)
            if ended:  # without prices there is no budget
                break
        write_pack(packable(workdir / run for run in SUITES[values.suite]), pack)
    print(f"softbench: the records so far: {pack}, {pack.stat().st_size:,} bytes")
    print(f"softbench: tables: softbench-report --results={workdir}/<run>")
    if is_version:
        show(workdir)
    if status == OUT_OF_TIME:
        print(f"softbench: next: {shlex.join(['softbench', *argv[1:]])}")
    return status


def _rest(minutes: float, end: float) -> list[str]:
    """The flag for what is left of so many minutes until their end."""
    left = (end - time.monotonic()) / 60
    left = left if left > minutes / 10 else 0.0  # in which no cell would get far
    return [f"--minutes={max(left, 1e-6)}"] if minutes else []


def _parse(argv: list[str]) -> tuple[flags.FlagValues, list[str]]:
    """The flags of a suite, and the others."""
    values = flags.FlagValues()
    flags.DEFINE_enum("suite", None, list(SUITES), "", flag_values=values)
    flags.DEFINE_string("workdir", None, "", flag_values=values)
    flags.DEFINE_string("data_dir", None, "", flag_values=values)
    flags.DEFINE_float("minutes", 0.0, "", 0.0, flag_values=values)
    ours = tuple(f"--{name}=" for name in ("suite", "workdir", "minutes"))
    known = [argument for argument in argv[1:] if argument.startswith((*ours, "--data_dir="))]
    commands.parse(values, [argv[0], *known], "")
    return values, [argument for argument in argv[1:] if not argument.startswith(ours)]


def _run(softbench: Callable[[list[str]], int], line: list[str]) -> int:
    """The exit status of a run; a mistake, or data that are not there, end no other one."""
    try:
        return softbench(line)
    except ConfigError as error:
        print(f"softbench: error: {error}", file=sys.stderr, flush=True)
        return 2


def packable(folders: Iterable[Path]) -> dict[str, bytes]:
    """Returns {name in a pack: content} of the plans, records and prices in folders of results."""
    contents = {}
    for folder in folders:
        for file in sorted([folder / records.PLAN, *folder.glob("*/*.json")]):
            name = file.relative_to(folder.parent).as_posix()
            if file.is_file() and _PACKED.fullmatch(name):
                contents[name] = file.read_bytes()
    return contents


def write_pack(contents: Mapping[str, bytes], path: Path) -> None:
    """Writes {name: content} into one file, without names of users or times."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.tmp")
    with tarfile.open(unfinished, "w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    unfinished.replace(path)


def unpack(path: Path, workdir: Path) -> int:
    """Puts the files of a pack under `workdir`, where they are not there; returns how many.

    Raises:
        ConfigError: for a file that is no pack.
    """
    contents = read_pack(path, "--workdir: the records there must be a pack")
    missing = {name: c for name, c in contents.items() if not (workdir / name).exists()}
    for name, content in missing.items():
        records.write_json(workdir / name, json.loads(content))
    return len(missing)


def read_pack(path: Path, rule: str) -> dict[str, bytes]:
    """Returns {name: content} of a pack's files, all of which are JSON.

    Raises:
        ConfigError: with the rule, for a file that is no pack.
    """
    contents = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                if not (member.isfile() and _PACKED.fullmatch(member.name)):
                    raise ValueError(f"a file {member.name!r} in it")
                if member.size > _LARGEST:
                    raise ValueError(f"{member.size:,} bytes of {member.name}")
                contents[member.name] = archive.extractfile(member).read()
                json.loads(contents[member.name])
            archive.fileobj.read()  # to its end, where the checksum of the whole is
    except (OSError, EOFError, ValueError, tarfile.TarError, zlib.error) as error:
        raise ConfigError(f"{rule}. Received: {path} ({error})") from None
    return contents
