"""Logs as files: a folder of JSON and safetensors that anyone can look into and nobody can hide code in.

    manifest.json                what is here, with sizes and hashes; written last: without it there is no bundle
    metadata.json                every record of the forward pass, as tables (encode.py, decode.py)
    tensors-00000.safetensors    the memory behind the tensors; each hash is in its header, the header's in the manifest

A save is on the disk when it returns, and replaces another bundle all at once (replace.py). Hashes are there to find
damage (hashing.py).

What is saved is the trace, not what was derived from it: a loaded log works everything out anew, by the same code.
Loading looks things up in tables of ours and torch's own; it imports nothing and runs nothing that a file names.
"""
