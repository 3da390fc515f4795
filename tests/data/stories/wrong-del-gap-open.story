# Records that are lost later do not close the finding.
0s    runtime starts
0s    kubelet starts
1s    sandbox a of web-0 begins
3s    add a podnet overtaken
4s    netns of a lost
30s   lose 1
9m    end
expect confirmed cni_wrong_del/add_open bridge web-0 a since 3s
expect blind_spot
