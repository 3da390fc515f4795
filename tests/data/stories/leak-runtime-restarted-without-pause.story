# CRI-O's sandbox without a process of its own, or Kata's without one on the node: it is on record.
0s    runtime starts
0s    kubelet starts
5s    sandbox a of web-0 begins
5s    record a
6s    add a podnet 10.88.0.2
7s    runtime dies
9s    runtime starts
200s  container main in a starts
9m    end
expect nothing
