# Files that host-local is about to write, and one whose sandbox still has the address.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
5s    empty 10.88.0.2 in podnet
5s    empty 10.88.0.7 in podnet
6s    free 10.88.0.7
9m    empty 10.88.0.8 in podnet
9m    end
expect nothing
