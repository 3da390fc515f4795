# The kubelet is down: nobody cleans up, and nothing is held against it.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
5s    kubelet dies
9s    stop a no-del
10s   remove a no-del
9m    end
expect nothing
