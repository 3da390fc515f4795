# Docker has a containerd of its own beside that of the kubelet, and it crashes each minute. Nobody waits for it, and it says
# nothing of the pods: the leak is confirmed in time, and no pod is told of that is well.
0s    runtime starts
0s    kubelet starts
0s    second containerd starts
1s    sandbox a of web-0 on keynet 10.99.0.2
1s    sandbox b of web-1 on keynet 10.99.0.3
2s    container main in a starts
3s    container main in b starts
10s   stop a no-del
11s   remove a no-del
60s   second containerd dies
61s   second containerd starts
120s  second containerd dies
121s  second containerd starts
180s  second containerd dies
181s  second containerd starts
240s  second containerd dies
241s  second containerd starts
300s  second containerd dies
301s  second containerd starts
360s  second containerd dies
361s  second containerd starts
420s  second containerd dies
421s  second containerd starts
480s  second containerd dies
481s  second containerd starts
490s  sandbox c of web-2 on keynet 10.99.0.4
491s  container main in c starts
520s  stop c
521s  remove c
522s  pod web-2 goes
540s  second containerd dies
541s  second containerd starts
600s  second containerd dies
601s  second containerd starts
660s  second containerd dies
661s  second containerd starts
720s  second containerd dies
721s  second containerd starts
780s  second containerd dies
781s  second containerd starts
840s  second containerd dies
841s  second containerd starts
15m   end
expect confirmed leaked_address/del_missing 10.99.0.2 web-0 a since 10s
