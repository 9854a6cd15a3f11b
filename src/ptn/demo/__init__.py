"""The page of `ptn demo`: transform an image and compare the predictions of a PTN and a plain CNN."""
