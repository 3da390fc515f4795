# A program kills a container now and then.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
1s    container main in a starts
2s    sandbox b of web-1 on podnet 10.88.0.3
2s    container main in b starts
3s    sandbox c of web-2 on podnet 10.88.0.4
3s    container main in c starts
60s   container main in a is killed by chaos
65s   container main in a starts
122s  container main in b is killed by chaos
127s  container main in b starts
184s  container main in c is killed by chaos
189s  container main in c starts
9m    end
expect nothing
