row_DP14() { # cores far apart: the machine's other state, where a cache line takes four times as long
  note "the machine's far state was not seen in this run"
  return 1
}
