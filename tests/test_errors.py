"""What an error says in one line: of what sort it is, why, and no more than a person reads."""

from __future__ import annotations

import pytest

from repro.console import one_line


@pytest.mark.parametrize(
    ("said", "output"),
    [
        ("out of memory\nTried to allocate 2 GiB", "RuntimeError: out of memory"),
        ("\n  out of memory", "RuntimeError: out of memory"),
        (
            "backend='inductor' raised:\nImportError: undefined symbol\n\nSet TORCHDYNAMO_VERBOSE=1",
            "RuntimeError: backend='inductor' raised: ImportError: undefined symbol",
        ),
        ("raised:", "RuntimeError: raised:"),
        (
            "NCCL error in: NCCLUtils.cpp:94, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL "
            "version 2.27.5\nncclSystemError: System call failed.\nLast error:\nError: failed to extend /dev/shm/n",
            "RuntimeError: NCCL error in: NCCLUtils.cpp:94: Error: failed to extend /dev/shm/n",
        ),
        ("Last error:", "RuntimeError: Last error:"),
        (
            "CppCompileError: C++ compile error\n\nCommand:\ng++ -Wall a.cpp\n\nOutput:\nvec.h:3:1: warning: overflow\n"
            "a.cpp:30:26: error: conflicting declaration of x\n   30 | auto x = y;\na.cpp:40:1: error: another",
            "RuntimeError: CppCompileError: C++ compile error: conflicting declaration of x",
        ),
        (
            "CppCompileError: C++ compile error\n\nCommand:\ng++ a.cpp\n\nOutput:\nSegmentation fault",
            "RuntimeError: CppCompileError: C++ compile error",
        ),
        ("", "RuntimeError: no message"),
    ],
)
def test_an_error_is_its_first_line_or_the_next_where_that_only_announces_it(said: str, output: str) -> None:
    assert one_line(RuntimeError(said)) == output


def test_a_line_that_holds_a_whole_command_is_cut() -> None:
    output = one_line(RuntimeError("Error building extension: nvcc " + "-Iinclude " * 200))
    assert output.startswith("RuntimeError: Error building extension: nvcc -Iinclude")
    assert output.endswith(" ...")
    assert len(output) < 320
