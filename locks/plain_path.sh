# Sourced by run_all.sh: makes `root`, the checkout, a path that all tools take, through a link where it has to be.

# uv makes no environment under such a name, and torch does not import from there.
! command -v iconv >/dev/null || printf %s "$root" | iconv -f UTF-8 -t UTF-8 >/dev/null 2>&1 ||
    die "$(printf %q "$root") is not UTF-8: move the checkout"
# Python splits paths at colons, torch and pytest at blanks, quotes or brackets: they get a plain one that leads here.
awkward=$'[][:space:]:\'"\\\\[]'
if [[ $root =~ $awkward ]]; then
    links=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}/repro
    link=$links/$(printf %s "$root" | cksum | tr ' ' -)
    # In a folder of somebody else the link could be led to a program of theirs.
    [[ $links == /?*/repro && ! $links =~ $awkward ]] && mkdir -p "$links" 2>/dev/null && [[ -O $links && ! -L $links ]] &&
        [[ -L $link || ! -e $link ]] && ln -sfn "$root" "$link" 2>/dev/null && [[ $link -ef $root ]] ||
        die "$(printf %q "$root") has what no compiler takes in a path, and no link to it can be made in $links: move the" \
            "checkout, or name a plain folder in XDG_CACHE_HOME"
    root=$link
fi
