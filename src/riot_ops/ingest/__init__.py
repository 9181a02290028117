"""How records enter a dataflow: sources, formats of files, pacing, casts and rejections."""
