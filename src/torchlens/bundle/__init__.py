"""Logs as files: a folder of JSON and safetensors that anyone can inspect and that can't hide code.

    manifest.json                the list of files, with sizes and hashes; written last: without it there is no bundle
    metadata.json                every record of the forward pass, as tables (encode.py, decode.py)
    tensors-00000.safetensors    the memory behind the tensors; each hash is in its header, the header's in the manifest

When a save returns, it is on disk; it replaces an existing bundle atomically (replace.py). Hashes detect damage
(hashing.py).

The trace is saved, and nothing that was derived from it: a loaded log derives everything again, with the same code.
Loading looks names up in fixed tables; it never imports or runs anything that a file names.
"""
