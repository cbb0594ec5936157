"""Compiles the comparison programs and clients in C."""

import pathlib
import subprocess

HERE = pathlib.Path(__file__).parent


def compile_c(source, target, *libraries):
    subprocess.run(
        ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", target, HERE / source,
         *libraries],
        check=True)
    return target
