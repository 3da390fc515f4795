# The runtime kills pause and then calls DEL: the usual order.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
9s    stop a
11s   remove a
9m    end
expect nothing
