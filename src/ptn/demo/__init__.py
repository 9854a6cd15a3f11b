"""The page of `ptn demo`: transform an image by hand and see what a PTN and a plain CNN compute."""
