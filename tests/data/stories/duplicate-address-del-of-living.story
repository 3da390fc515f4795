# The runtime calls DEL for a sandbox that lives, and the address is given to another pod.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
10s   del a
20s   sandbox b of web-1 on podnet 10.88.0.2
21s   container main in b starts
9m    end
expect confirmed duplicate_address 10.88.0.2 web-1 a b
