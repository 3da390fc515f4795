# The image of a pod of Kata Containers cannot be pulled: the runtime says that the sandbox is ready, and lists no container.
0s    runtime starts
0s    kubelet starts
0s    runtime is followed
1s    pod web-0
1s    sandbox a of web-0 under kata on podnet 10.88.0.2
1m    runtime lists
2m    runtime lists
3m    runtime lists
4m    runtime lists
5m    runtime lists
6m    runtime lists
7m    runtime lists
8m    runtime lists
9m    runtime lists
10m    runtime lists
11m    runtime lists
12m    runtime lists
13m    runtime lists
14m    runtime lists
15m   end
expect confirmed stuck_start/container web-0 a
