"""The command line: it selects the command, and reports errors as one line and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import os
import re
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import Field, fields
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn

from . import command, console
from .commands import HELP, custom_models
from .console import FAILED, INSTALLED, INTERRUPTED, OK, USAGE, Unfailing, UserError, say, suggest_names, visible_lines
from .datafile import of_another
from .machine.host import no_more_processes, process_limit
from .options import BEHIND, Options, declared, name_of

_FRONT_DOOR = (
    "run_all.sh test runs the tests. --with-kernels, --with-flash4, --with-modern and --with-tracking go first: see "
    "the head of run_all.sh."
)
_MEASURING = ("run", "lab", "probe")


# Old words, and what takes their place; an old option is one of commands that have the option named first.
_OLD_OPTIONS = {
    "--clock": ("--by", "--by now"),
    "--corrected": ("--by", "--by true now"),
    "--predicted": ("--stack", "done by itself now: what has no measured days has predicted ones"),
    "--attention": ("--with", "--with attention=flash now"),
    "--allow-cpu": ("--processes", "--processes N now, which runs on the CPU beside --gpus too"),
    "--check-extrapolation": ("--project", "done by itself now, where it takes under a tenth of a trial"),
    "--check-projection": ("--project", "no option now: --project does it where it takes under a tenth of the run"),
    "--strict-projection": ("--project", "no option now: --project verifies nothing, and fails no run"),
    "--track": ("--project", "a command now, repro track DIR, which logs what a run wrote"),
    "-k": ("--project", "-- -k EXPRESSION now, behind -- with pytest's other options"),
}
_OLD_COMMANDS = {
    **{name: f"list {name}" for name in ("recipes", "gpus", "settings")},
    "calibrate": "probe",
    "recommend": "cost MODEL",
    "rent": "cost MODEL --terms rent",
    "breakeven": "cost without a model, or cost MODEL --terms either",
    "scaling": "cost MODEL --gpu NAME",
}


class _Once(argparse.Action):
    """Stores a value, and refuses an option given twice: argparse would drop the first without a message."""

    _given: Any = None  # one parser reads one command line

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, value: Any, *_: Any) -> None:
        if self.option_strings:
            option = _with_value(self, value)
            if self._given is not None:
                first, second = (f"{option} {shlex.quote(str(each))}" for each in (self._given, value))
                raise UserError(f"{first} and {second}: expected {option} once, with one value")
            self._given = value
        setattr(namespace, self.dest, value)


class _EachTime(argparse.Action):
    """Appends the values of a repeated option."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, value: Any, *_: Any) -> None:
        _with_value(self, value)
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or ()), value])


def _with_value(action: argparse.Action, value: Any) -> str:
    """Return the option. Raise UserError where it has no value."""
    option = action.option_strings[-1]
    if value == []:  # argparse takes -- for the end of all options, and an empty rest for the value
        raise UserError(f"{option} --: expected a value")
    return option


class _Parser(argparse.ArgumentParser):
    """Parses command lines into a data class of options."""

    def __init__(self, kind: type[Options], **known: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **known)
        self.register("action", None, _Once)  # for options without an action
        self.register("action", "append", _EachTime)
        self._negative_number_matcher = re.compile(r"-\.?[0-9]")  # -4h counts as a value, which its option checks
        self.kind, waiting = kind, {each.name: each for each in fields(kind)}
        self._behind = next((name for name, each in waiting.items() if name_of(each) == BEHIND), None)
        for part in kind.__mro__[:-1]:  # a command's own options first, then those that it shares
            title = vars(part).get("title")
            group = self.add_argument_group(title, vars(part)["about"]) if title else self
            for name in declared(part):
                if name in waiting:
                    _add(group, waiting.pop(name))

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the options that were asked for. Raise UserError for the first that is wrong."""
        found = vars(super().parse_args(args))
        return self.kind(**{each.name: _parsed(each, found[each.name]) for each in fields(self.kind)})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Report misspelled options first: argparse reports missing ones first."""
        if self._behind is not None:  # argparse gives them to no positional
            split = [*args, BEHIND].index(BEHIND)
            args, rest = args[:split], args[split + 1 :]
            namespace = argparse.Namespace(**{self._behind: rest})
        known = [each.removeprefix("--") for each in self._option_string_actions if each.startswith("--")]
        words = [*itertools.takewhile(lambda word: word != "--", args or ())]
        if any(action.dest in ("models", "model") for action in self._actions):
            custom_models.refuse_old(words)
        for word in words:
            option = word.partition("=")[0]
            name = option.removeprefix("--")
            of, now = _OLD_OPTIONS.get(option, ("", ""))
            if of in self._option_string_actions and option not in self._option_string_actions:
                raise UserError(f"{option} is {now}; see {self.prog} --help")
            if name == option or " " in name or any(each.startswith(name) for each in known):  # argparse completes it
                continue
            if meant := suggest_names(name, known):
                raise UserError(f"unknown option {option}: did you mean {' or '.join(f'--{each}' for each in meant)}?")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see {self.prog} --help")


def _add(group: argparse._ActionsContainer, option: Field[Any]) -> None:
    """Add an option to a parser or a group of its help."""
    more = {key: value for key, value in option.metadata.items() if key not in ("name", "parse")}
    name = option.metadata.get("name")
    if name == "":
        group.add_argument(option.name, **more)
    elif name != BEHIND:
        group.add_argument(name_of(option), dest=option.name, **more)


def _parsed(option: Field[Any], found: Any) -> Any:
    """Return the value of an option of which argparse `found` this: a text, several, a flag or nothing."""
    if found is None or found == []:
        return option.default
    if isinstance(found, bool):
        return found
    parse, name = option.metadata["parse"], name_of(option)
    return parse(found, name) if isinstance(found, str) else tuple(parse(each, name) for each in found)


def main(arguments: Sequence[str]) -> int:
    """Run a command and return the exit code. Without a command's name it is `run`."""
    _reset_signals()
    _open_what_is_closed()
    output = _Output(sys.stdout)
    with contextlib.redirect_stderr(Unfailing(sys.stderr)):
        try:
            with contextlib.redirect_stdout(output):
                code = _run(list(arguments), output)
        except SystemExit as end:  # from argparse, after help
            code = int(end.code or OK)
        except UserError as error:
            say(error)
            code = USAGE
        except KeyboardInterrupt:
            code = INTERRUPTED
        except (OSError, RuntimeError) as error:
            if isinstance(error, FileNotFoundError) and _folder_is_gone():
                say(_NO_FOLDER)
                code = USAGE
            elif no_more_processes(str(error)):
                say(process_limit())
                code = FAILED
            else:
                raise
        finally:
            output.flush()
        if output.error is not None:
            say(f"cannot write the output: {output.error.strerror}")
            code = code if output.is_in_files else USAGE
    return code


_NO_FOLDER = "the current folder was removed: change to one that exists, and run the same command again"


def _folder_is_gone() -> bool:
    """Return whether the current folder was removed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


# Signals that nohup and a shell's & ignore on purpose, and those that Python itself ignores.
_MAY_BE_IGNORED = {"SIGHUP", "SIGINT", "SIGQUIT", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGPIPE", "SIGXFSZ"}


def _reset_signals() -> None:
    """Give signals that this process inherited as ignored or blocked their default action. While SIGCHLD is ignored, no
    process can be waited for."""
    for number in signal.valid_signals():
        if getattr(number, "name", "") not in _MAY_BE_IGNORED and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _open_what_is_closed() -> None:
    """Open /dev/null for stdin, stdout and stderr that a shell closed (>&-), so that no later file gets their
    number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            stream = open(number, "w" if number else "r", closefd=False)  # noqa: SIM115, open as long as the program is
            setattr(sys, name, stream)
    if isinstance(sys.stdout, io.TextIOWrapper):
        utf_8 = sys.stdout.encoding.lower() == "utf-8"  # invalid bytes of a path are written as they were read
        sys.stdout.reconfigure(errors="surrogateescape" if utf_8 else "backslashreplace")


def parser(name: str) -> _Parser:
    """Return the parser of a command, whose `parse_args` returns its options."""
    kind = _command(name).Asked
    return _Parser(
        kind,
        prog=f"{command()} {name}",
        usage=kind.usage,
        description=HELP[name][0].upper() + HELP[name][1:] + ".",
        epilog=kind.epilog,
    )


def _command(name: str) -> ModuleType:
    return import_module(f".commands.{name}", __package__)


def _run(words: list[str], output: _Output) -> int:
    if words and words[0] == "upgrade-check":  # workflows call it; it goes with the next version
        say("upgrade-check is compare --against now")
        words[0] = "compare"
    if not words or words[0] not in (*HELP, "-h", "--help", "--version"):
        if words and (now := _OLD_COMMANDS.get(words[0])):
            raise UserError(f"{words[0]} is {now} now; see {command()} {now.split()[0]} --help")
        if words and not words[0].startswith("-"):
            meant = suggest_names(words[0], HELP)
            hint = f"did you mean {' or '.join(meant)}?" if meant else f"it is one of {', '.join(HELP)}"
            raise UserError(f"unknown command {words[0]!r}: {hint}")
        words.insert(0, "run")
    if words[0] not in HELP:
        _overview().parse_args(words)
    asked = parser(words[0]).parse_args(words[1:])
    measures = words[0] in _MEASURING or getattr(asked, "against", None) is not None
    if measures and _folder_is_gone():  # no fork server would start
        raise UserError(_NO_FOLDER)
    asked = custom_models.register(asked)
    output.folds = getattr(asked, "format", None) in (None, "text")
    output.is_in_files = measures  # even if stdout fails
    if another := of_another():
        say(another)
    found: int | str = _command(words[0]).main(asked)
    if isinstance(found, int):
        return found
    print(found)
    return OK


class _Output(Unfailing):
    """The stdout of commands, without terminal control characters. Text wraps on a terminal if `folds`. A failed write
    is no error if the results are also in files (`is_in_files`)."""

    folds, is_in_files = True, False

    def write(self, text: str) -> int:
        visible = visible_lines(text)
        width = console.width() if self.folds else None
        super().write(visible if width is None else console.folded(visible, width))
        return len(text)


def _overview() -> argparse.ArgumentParser:
    from . import __version__

    width = max(map(len, HELP))
    found = _Parser(
        Options,
        prog=command(),
        usage="%(prog)s [COMMAND] [OPTIONS]",
        description="Measures the training step of the paper's nine models on the hardware at hand, extrapolates "
        "to training days, and compares them with the paper's Tables 1 and 4.\n\ncommands:\n"
        + "\n".join(f"  {name:{width}}  {help}" for name, help in HELP.items()),
        epilog=f"Without a command: run. Its options: {command()} run --help"
        + ("" if INSTALLED else f"\n{_FRONT_DOOR}"),
    )
    found.add_argument("--version", action="version", version=f"repro {__version__}")
    return found
