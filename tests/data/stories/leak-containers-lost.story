# What containers do at will was lost, again and again: what the runtime did was seen all the same.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
5s    lose 3 of containers
8s    lose 1000 of containers
9s    stop a no-del
10s   remove a no-del
11s   lose 9 of containers
9m    end
expect confirmed leaked_address/del_missing 10.88.0.2 web-0 a
