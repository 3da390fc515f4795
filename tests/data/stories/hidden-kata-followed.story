# A pod of kata whose runtime is followed over CRI. Its list is read each minute.
0s    runtime starts
0s    kubelet starts
0s    runtime is followed
1s    pod web-0
1s    sandbox a of web-0 under kata on podnet 10.88.0.2
3s    container main in a starts
4s    container side in a starts
5s    container side in a exits 1
1m    runtime lists
2m    runtime lists
3m    runtime lists
4m    runtime lists
5m    runtime lists
6m    runtime lists
7m    runtime lists
8m    runtime lists
8m    container side in a starts
9m    runtime lists
10m    runtime lists
11m    runtime lists
12m    runtime lists
13m    runtime lists
14m    runtime lists
15m    runtime lists
16m    runtime lists
17m   stop a
17m   remove a
17m   pod web-0 goes
18m   runtime lists
25m   end
expect nothing
