module github.com/teamchan/team/bench

go 1.26.0

require (
	github.com/stretchr/testify v1.12.1
	github.com/teamchan/team v0.0.0
	github.com/tiktoken-go/tokenizer v0.10.0
	github.com/rivo/uniseg v0.4.7
)
