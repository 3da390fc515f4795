# A runtime that is installed, not used, and crashes again and again has nothing to clean up: nobody waits for it.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on keynet 10.99.0.2
1s    sandbox b of web-1 on keynet 10.99.0.3
2s    container main in a starts
3s    container main in b starts
10s   stop a no-del
11s   remove a no-del
20s   crio starts
45s   crio dies
45s   crio starts
70s   crio dies
70s   crio starts
95s   crio dies
95s   crio starts
120s   crio dies
120s   crio starts
145s   crio dies
145s   crio starts
170s   crio dies
170s   crio starts
195s   crio dies
195s   crio starts
220s   crio dies
220s   crio starts
245s   crio dies
245s   crio starts
270s   crio dies
270s   crio starts
295s   crio dies
295s   crio starts
320s   crio dies
320s   crio starts
345s   crio dies
345s   crio starts
370s   crio dies
370s   crio starts
395s   crio dies
395s   crio starts
420s   crio dies
420s   crio starts
445s   crio dies
445s   crio starts
470s   crio dies
470s   crio starts
495s   crio dies
495s   crio starts
9m    end
expect confirmed daemon_failing/1 crio x3 since 20s
expect confirmed leaked_address/del_missing 10.99.0.2 web-0
