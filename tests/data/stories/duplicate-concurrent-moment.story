# The next sandbox is made while the last is still being stopped.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
9s    sandbox b of web-0 on podnet 10.88.0.3
9s    stop a
10s   container main in b starts
11s   remove a
9m    end
expect nothing
