# The pid was nobody's when DEL was called, and a program of the node has it when it is looked at.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 before boot
10s   del a podnet in process of newcomer
11s   forget a
9m    end
expect nothing
