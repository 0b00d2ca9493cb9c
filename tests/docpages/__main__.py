"""`make docs`: write the generated parts of docs/ again."""

import layer_support

from docpages.blocks import ROOT
from docpages.generated import write_all

if __name__ == "__main__":
    layer_support.rewrite_page()
    for path in write_all():
        print(f"docs: wrote {path.relative_to(ROOT)}")
