# A pod of kata, without CRI: it runs, one container of it crashes again and again, its runtime restarts, and it is deleted.
0s    runtime starts
0s    kubelet starts
1s    pod web-0
1s    sandbox a of web-0 under kata on podnet 10.88.0.2
3s    container main in a starts
4s    container side in a starts
5s    container side in a exits 1
6s    sandbox b of web-1 on podnet 10.88.0.3
7s    container main in b starts
5m    container side in a starts
6m    container side in a exits 1
12m   runtime dies
12m   runtime starts
17m   stop a
17m   remove a
17m   pod web-0 goes
25m   end
expect nothing
