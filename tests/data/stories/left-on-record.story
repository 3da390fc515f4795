# A pod was deleted, and its runtime keeps its sandbox, for which it calls no DEL.
0s    runtime starts
0s    kubelet starts
0s    runtime is followed
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
3s    container main in a exits 0
10s   stop a no-del
10s   pod web-0 goes
11s   pod web-0 is deleted
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
14m   end
expect confirmed phantom_sandbox/left_on_record x1 a
expect confirmed leaked_address/del_missing 10.88.0.2 web-0 a
expect confirmed stuck_stop/del x0 web-0 a
expect incident stuck_stop .leaked_address .+phantom_sandbox
