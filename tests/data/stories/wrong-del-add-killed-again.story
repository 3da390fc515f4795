# A plugin hangs, and the ADD of each try is killed. That is told once.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 begins
2s    add a podnet killed
3s    netns of a lost
60s   sandbox b of web-0 begins
61s   add b podnet killed
62s   netns of b lost
2m    sandbox c of web-1 begins
121s  add c podnet killed
122s  netns of c lost
10m   end
expect confirmed cni_wrong_del/add_killed bridge x1 web-0 a since 2s
expect confirmed cni_failing bridge x2 web-0 a b since 2s
