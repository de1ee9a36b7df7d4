"""All presets `accelerator`, one after the other, on a machine that is there for some minutes.

    python -m softbench.bench.accelerator --data_dir=<data> --workdir=<folder> --out=<folder>

A call ends after `--minutes` and writes all records so far into one file, `<out>/records.tar.gz`.
The next one goes on: in the same `--workdir` also with the cell that was cut off, from its last
checkpoint; on another machine `--resume_from=<that file>` has the finished cells, and a cell that
was cut off begins anew. `--rehearse` runs the same on tiny generated data. The exit status is 3
while cells are left, else that of `softbench`. Needs no Keras.
"""

import io
import json
import re
import sys
import tarfile
import time
from collections.abc import Iterable
from pathlib import Path

from absl import flags

from softbench import commands
from softbench.bench import app, records
from softbench.commands import ConfigError

# In the order in which they run: first what needs no data.
EXPERIMENTS = (
    "full_softmax",
    "scaling",
    "wall_time",
    "xmc_scale",
    "large_vocabulary",
    "ptb_rff:equal_time",
    "sequences",
    "ptb_rff",
    "ptb_nce",
)
PACK = "records.tar.gz"
LARGEST = 16 * 2**20  # bytes of a pack: what a lent machine gives back may be limited
_PACKED = re.compile(rf"[\w-][\w.-]*/({records.PLAN}|runs/[^./\x00][^/\x00]*\.json)")
_USAGE = "python -m softbench.bench.accelerator --data_dir=DATA --workdir=FOLDER --out=FOLDER"
_TEXTS = {
    "data_dir": "Folder of the data sets; those of the configs' docstrings.",
    "workdir": "Folder for the results, a folder for each experiment.",
    "out": "Folder for the file of all records.",
    "resume_from": "Such a file, of an earlier call.",
    "backend": "jax, the default, or tensorflow.",
    "experiments": "Comma-separated; all without it.",
}


def main(argv: list[str]) -> int:
    """Runs the command line; returns the exit status."""
    values = commands.parse(_define(), argv, _USAGE)
    names = _names(values.experiments)
    if values.workdir is None:
        raise ConfigError("--workdir must be given. Received: none")
    if values.data_dir is None and not values.rehearse:
        raise ConfigError("--data_dir must be given, or --rehearse. Received: neither")
    workdir, end = Path(values.workdir), time.monotonic() + 60 * values.minutes
    if values.resume_from:
        print(f"{unpack(Path(values.resume_from), workdir)} files taken up", flush=True)
    status, folders = 0, []
    for name in names:
        line = command_line(name, values)
        folders.append(workdir / app.default_workdir(app.read_config(app.parse(line))).name)
        left = (end - time.monotonic()) / 60
        left = left if left > values.minutes / 10 else 0.0  # in which no cell would get far
        print(f"--- {name}, {left:.1f} minutes left", flush=True)
        code = _run([*line, f"--workdir={folders[-1]}", f"--minutes={max(left, 1e-6)}"])
        status = max(status, code)
        if values.out:
            pack(folders, Path(values.out) / PACK)
    return status


def _define() -> flags.FlagValues:
    values = flags.FlagValues()
    for name, text in _TEXTS.items():
        flags.DEFINE_string(name, None, text, flag_values=values)
    flags.DEFINE_float("minutes", 9.0, "Of this call.", 0.01, flag_values=values)
    text = "Runs the presets `smoke`: the same code in little time."
    flags.DEFINE_bool("rehearse", False, text, flag_values=values)
    return values


def _names(text: str | None) -> list[str]:
    names = text.split(",") if text else list(EXPERIMENTS)
    if unknown := sorted(set(names) - set(EXPERIMENTS)):
        allowed = ", ".join(EXPERIMENTS)
        raise ConfigError(f"--experiments must be among: {allowed}. Received: {unknown}")
    return names


def command_line(name: str, values: flags.FlagValues) -> list[str]:
    """The command line of an experiment, without what differs from call to call."""
    preset = "smoke" if values.rehearse else "accelerator"
    line = ["softbench", f"--config={name}", f"--config.preset={preset}"]
    line += [f"--backend={values.backend or 'jax'}", "--checkpoint_minutes=1"]
    line += [f"--data_dir={values.data_dir}"] if values.data_dir else []
    return app.resolved(line)


def _run(line: list[str]) -> int:
    """The exit status of an experiment; a mistake, or data that are not there, end no other one."""
    try:
        return app.main(line, lambda folder: None)
    except ConfigError as error:
        print(f"softbench: error: {error}", file=sys.stderr, flush=True)
        return 2


def pack(folders: Iterable[Path], path: Path) -> None:
    """Writes the plans and records of experiments into one file, without names of users or times.

    A file above `LARGEST` is written, and said to be so.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.tmp")
    with tarfile.open(unfinished, "w:gz") as archive:
        for folder in folders:
            for file in [folder / records.PLAN, *sorted((folder / "runs").glob("*.json"))]:
                name = file.relative_to(folder.parent).as_posix()
                if file.is_file() and _PACKED.fullmatch(name):
                    content = file.read_bytes()
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
    unfinished.replace(path)
    size = path.stat().st_size
    print(f"{path.name}: {size:,} bytes{', too many' * (size > LARGEST)}", flush=True)


def unpack(path: Path, workdir: Path) -> int:
    """Puts the files of a pack under `workdir`, where they are not there; returns how many.

    Raises:
        ConfigError: for a file that is no pack.
    """
    count = 0
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                if not (member.isfile() and _PACKED.fullmatch(member.name)):
                    raise ValueError(f"a file {member.name!r} in it")
                content = json.loads(archive.extractfile(member).read())
                if not (workdir / member.name).exists():
                    records.write_json(workdir / member.name, content)
                    count += 1
    except (OSError, EOFError, ValueError, tarfile.TarError) as error:
        raise ConfigError(f"--resume_from must be a {PACK}. Received: {path} ({error})") from None
    return count


def run() -> None:
    """Entry point of the command."""
    commands.run("softbench", main, "run the same command to resume")


if __name__ == "__main__":
    run()
