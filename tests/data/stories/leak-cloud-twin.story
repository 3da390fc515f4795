# Nobody can read the store, and DEL had its namespace.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on cloudnet 10.77.0.2
9s    stop a
11s   remove a
9m    end
expect nothing
