# CHECK and STATUS touch nothing.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
3s    check a
4s    status a
9s    stop a
10s   status a
10s   remove a
9m    end
expect nothing
