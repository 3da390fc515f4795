# A pod waits for a runtime that does not come up.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on podnet 10.88.0.2
2s    container main in a starts
70s   runtime fails 1
72s   runtime starts
73s   runtime fails 1
80s   pod web-1
92s   runtime starts
93s   runtime fails 1
112s   runtime starts
113s   runtime fails 1
132s   runtime starts
133s   runtime fails 1
152s   runtime starts
153s   runtime fails 1
172s   runtime starts
173s   runtime fails 1
192s   runtime starts
193s   runtime fails 1
212s   runtime starts
213s   runtime fails 1
232s   runtime starts
233s   runtime fails 1
252s   runtime starts
253s   runtime fails 1
272s   runtime starts
273s   runtime fails 1
292s   runtime starts
293s   runtime fails 1
312s   runtime starts
313s   runtime fails 1
332s   runtime starts
333s   runtime fails 1
352s   runtime starts
353s   runtime fails 1
372s   runtime starts
373s   runtime fails 1
392s   runtime starts
393s   runtime fails 1
412s   runtime starts
413s   runtime fails 1
432s   runtime starts
433s   runtime fails 1
452s   runtime starts
453s   runtime fails 1
472s   runtime starts
473s   runtime fails 1
492s   runtime starts
493s   runtime fails 1
512s   runtime starts
513s   runtime fails 1
532s   runtime starts
533s   runtime fails 1
9m    end
expect confirmed daemon_failing/1 containerd x3 since 72s
expect confirmed stuck_start/sandbox since 80s
expect incident daemon_failing .stuck_start
