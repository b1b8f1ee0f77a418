row_HS5() { # columns of comments and Markdown; 100 public items, old and new text side by side
  local wide items=$OUT/hs5-items.txt
  wide=$(hs5_wide "$here" | tee "$OUT/hs5-wide.txt" | wc -l)
  head -n 5 "$OUT/hs5-wide.txt" | while read -r line; do note "$line"; done
  hs_old_tree || return 1
  hs5_items "$hs_old" >"$OUT/hs5-old.tsv"
  hs5_items "$here" >"$OUT/hs5-new.tsv"
  hs5_draw "$(git -C "$here" rev-parse HEAD)" <"$OUT/hs5-new.tsv" | head -n 100 | hs5_beside "$OUT/hs5-old.tsv" >"$items"
  note "100 of $(wc -l <"$OUT/hs5-new.tsv") documented public items are in $items"
  goal HS5 "$wide lines of comments and Markdown over 100 columns" "0" "$wide == 0"
}

# hs5_wide FOLDER: such lines. In tables and in code blocks of Markdown they count as well.
hs5_wide() {
  (cd "$1" && git ls-files -z '*.md' '*.rs' '*.sh' '*.toml' Makefile ':!fuzz/corpus' \
    | xargs -0 perl -CSD -ne 'chomp; my $comment = $ARGV =~ /\.rs$/ ? m{(^|\s)//} : $ARGV =~ /\.md$/ ? 1 : m{(^|\s)#};
        print "$ARGV:$.: ", length, "\n" if length > 100 && $comment; close ARGV if eof')
}

# hs5_items FOLDER: every documented public item: kind and name, file, text.
hs5_items() {
  (cd "$1" && find crates -name '*.rs' -path '*/src/*' | sort | xargs awk '
    FNR == 1 {text = ""}
    /^ *\/\/\/ ?/ {line = $0; sub(/^ *\/\/\/ ?/, "", line); text = text (text == "" ? "" : "\\n") line; next}
    /^ *#\[/ {next}
    match($0, /^ *pub (\([a-z]+\) )?(const |unsafe |async )*(fn|struct|enum|trait|const|static|type) [A-Za-z_0-9]+/) {
      item = substr($0, RSTART, RLENGTH); sub(/^ *pub /, "", item)
      if (text != "") print item "\t" FILENAME "\t" text}
    {text = ""}')
}

# hs5_draw HASH: the lines in an order that only the hash decides.
hs5_draw() {
  while IFS= read -r line; do printf '%s\t%s\n' "$(sha256sum <<<"$1 ${line%$'\t'*}" | cut -c 1-16)" "$line"; done \
    | sort | cut -f 2-
}

# hs5_beside OLD: each item with its old text, found by kind and name, first in the file of the
# same name.
hs5_beside() {
  awk -F '\t' -v old="$1" '
    function base(path) {sub(/.*\//, "", path); return path}
    BEGIN {while ((getline line <old) > 0) {split(line, f, "\t"); if (!(f[1] in any)) any[f[1]] = f[3]; same[f[1], base(f[2])] = f[3]}}
    {before = ($1, base($2)) in same ? same[$1, base($2)] : ($1 in any) ? any[$1] : "(no item of this name)"
      gsub(/\\n/, "\n       ", before); gsub(/\\n/, "\n       ", $3)
      print $1 " (" $2 ")\n  old: " before "\n  new: " $3 "\n"}'
}
