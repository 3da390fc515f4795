# The kubelet restarts, and the node is drained: the pods come again elsewhere, or with another UID.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
3s    sandbox b of web-1 on podnet 10.88.0.3
4s    container main in b starts
60s   kubelet dies
61s   kubelet starts
65s   stop a
66s   remove a
67s   stop b
68s   remove b
70s   sandbox c of web-2 on podnet 10.88.0.4
9m    end
expect nothing
