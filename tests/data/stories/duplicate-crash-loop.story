# A container crashes again and again in one sandbox.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
3s    container main in a exits 1
13s   container main in a starts
14s   container main in a exits 1
34s   container main in a starts
35s   container main in a exits 1
75s   container main in a starts
9m    end
expect nothing
