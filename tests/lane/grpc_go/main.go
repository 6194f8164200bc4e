// A client made of nothing but grpc-go and generated stubs: pushes and pulls, and prints what it saw, a line for each call.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"log"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"paceline/grpc_go/stubs"
)

const part = 1 << 18 // elements of a part

type reply interface {
	GetHead() *stubs.PullHead
	GetData() []byte
}

// The reply's weights, which must all be there.
func weights[Reply reply](replies interface{ Recv() (Reply, error) }) ([]float32, error) {
	var data bytes.Buffer
	var head *stubs.PullHead
	for {
		reply, err := replies.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if head == nil {
			head = reply.GetHead()
		}
		data.Write(reply.GetData())
	}
	found := make([]float32, data.Len()/4)
	if err := binary.Read(&data, binary.LittleEndian, found); err != nil {
		return nil, err
	}
	if uint64(len(found)) != head.GetElements() {
		return nil, fmt.Errorf("%d weights came, %d were announced", len(found), head.GetElements())
	}
	return found, nil
}

func push(ctx context.Context, client stubs.ParameterServiceClient, values []float32) ([]float32, error) {
	call, err := client.PushPull(ctx)
	if err != nil {
		return nil, err
	}
	for start := 0; start < len(values); start += part {
		var data bytes.Buffer
		if err := binary.Write(&data, binary.LittleEndian, values[start:min(start+part, len(values))]); err != nil {
			return nil, err
		}
		message := &stubs.PushPullRequest{Offset: uint64(start), Data: data.Bytes()}
		if start == 0 {
			message.Head = &stubs.PushHead{Worker: "worker-0", Clock: 1, Elements: uint64(len(values))}
		}
		if err := call.Send(message); err != nil {
			break // Recv says why
		}
	}
	if err := call.CloseSend(); err != nil {
		return nil, err
	}
	return weights[*stubs.PushPullReply](call)
}

func pull(ctx context.Context, client stubs.ParameterServiceClient, version uint64) ([]float32, error) {
	replies, err := client.Pull(ctx, &stubs.PullRequest{Reader: "worker-0", Version: &version})
	if err != nil {
		return nil, err
	}
	return weights[*stubs.PullReply](replies)
}

func say(name string, values []float32, err error) {
	if err != nil {
		fmt.Printf("%s %s: %s\n", name, status.Code(err), status.Convert(err).Message())
		return
	}
	sum := 0.0
	for _, value := range values {
		sum += float64(value)
	}
	fmt.Printf("%s OK: %d weights, sum %.0f\n", name, len(values), sum)
}

func main() {
	address := flag.String("address", "", "host:port")
	token := flag.String("token", "", "the run's token")
	elements := flag.Int("elements", 0, "elements to push, and to pull")
	patience := flag.Duration("patience", 20*time.Second, "deadline of a call")
	flag.Parse()

	connection, err := grpc.NewClient(*address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	client := stubs.NewParameterServiceClient(connection)
	within := func(work func(context.Context)) {
		ctx, cancel := context.WithTimeout(context.Background(), *patience)
		defer cancel()
		if *token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+*token)
		}
		work(ctx)
	}

	values := make([]float32, *elements)
	for index := range values {
		values[index] = float32(index % 7)
	}
	within(func(ctx context.Context) {
		reply, err := client.Resume(ctx, &stubs.ResumeRequest{Worker: "worker-0", Clock: 5})
		if err == nil && reply.GetClock() != 5 {
			err = fmt.Errorf("clock %d", reply.GetClock())
		}
		say("Resume", nil, err)
	})
	within(func(ctx context.Context) {
		found, err := push(ctx, client, values)
		say("PushPull", found, err)
	})
	within(func(ctx context.Context) {
		found, err := pull(ctx, client, uint64(*elements))
		say("Pull", found, err)
	})
}
