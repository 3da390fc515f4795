# Nobody can react while the kubelet is down. Its time begins with its start.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
3s    container main in a exits 1
4s    kubelet dies
20m   kubelet starts
25m   container main in a starts
40m   end
expect nothing
