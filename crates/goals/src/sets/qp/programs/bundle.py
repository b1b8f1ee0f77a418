"""Bundles echo.py with all modules that it uses, for a guest that has no Python.

Writes modules.zip beside this file. Prints the interpreter, the archive, and the modules that are
shared libraries, as JSON. Run it with -S, so that modules of the site do not come along.
"""

import os
import sys

# The program needs no TLS, whose libraries are large.
sys.modules["ssl"] = None
folder = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, folder)
import asyncio
# `python -m` needs it.
import runpy

import echo

# What the program prints is not the result of this one.
sys.stdout = sys.stderr
asyncio.run(echo.all_at_once())
sys.stdout = sys.__stdout__
modules = {name: module for name, module in sys.modules.items() if name != "__main__"}

import json
import py_compile
import tempfile
import zipfile

libraries = []
archive = os.path.join(folder, "modules.zip")
with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as bundle, tempfile.TemporaryDirectory() as work:
    for name, module in sorted(modules.items()):
        # Aliases such as os.path have the name of the other module in their description.
        spec = getattr(module, "__spec__", None)
        file = getattr(module, "__file__", None)
        if file is None or (spec is not None and spec.name != name):
            continue
        if not file.endswith(".py"):
            libraries.append(file)
            continue
        path = name.replace(".", "/") + ("/__init__" if hasattr(module, "__path__") else "")
        compiled = os.path.join(work, "compiled")
        py_compile.compile(file, cfile=compiled, doraise=True)
        bundle.write(compiled, path + ".pyc")
print(json.dumps({"python": os.path.realpath(sys.executable), "archive": archive, "libraries": libraries}))
