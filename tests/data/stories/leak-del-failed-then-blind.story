# DEL with the namespace fails; once that is gone, a DEL without it answers that all is well.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 on keynet 10.99.0.2
9s    stop a del-fails
20s   netns of a lost
21s   del a
30s   remove a
9m    end
expect confirmed leaked_address/del_blind 10.99.0.2 web-0 a
