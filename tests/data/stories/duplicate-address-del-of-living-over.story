# The same, until the pod is stopped.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
10s   del a
20s   sandbox b of web-1 on podnet 10.88.0.2
21s   container main in b starts
3m    stop a
3m    remove a
9m    end
expect closed duplicate_address 10.88.0.2 web-1 a b
