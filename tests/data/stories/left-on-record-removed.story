# The kubelet has the sandbox of a deleted pod removed a minute later.
0s    runtime starts
0s    kubelet starts
0s    runtime is followed
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
3s    container main in a exits 0
10s   stop a
10s   pod web-0 goes
11s   pod web-0 is deleted
1m    runtime lists
2m    runtime lists
3m    remove a
3m    runtime lists
14m   end
expect nothing
