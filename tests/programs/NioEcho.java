// SPDX-License-Identifier: GPL-2.0-only

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.Iterator;

/** An echo server and its client, both with a selector: connections open without blocking. */
public final class NioEcho {
    private static final int CLIENTS = 8;
    private static final int BYTES = 100_000;

    public static void main(String[] words) throws IOException {
        if (words[0].equals("serve")) {
            serve(Integer.parseInt(words[1]));
            return;
        }
        InetSocketAddress server = new InetSocketAddress(words[1], Integer.parseInt(words[2]));
        if (words[0].equals("rate")) {
            rate(server, Integer.parseInt(words[3]));
        } else {
            ask(server);
        }
    }

    private static void serve(int port) throws IOException {
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.setOption(StandardSocketOptions.SO_REUSEADDR, true);
        listener.bind(new InetSocketAddress(port));
        listener.configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        while (true) {
            selector.select();
            for (Iterator<SelectionKey> keys = selector.selectedKeys().iterator(); keys.hasNext(); keys.remove()) {
                SelectionKey key = keys.next();
                if (key.isAcceptable()) {
                    SocketChannel channel = listener.accept();
                    if (channel != null) {
                        channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
                        channel.configureBlocking(false);
                        channel.register(selector, SelectionKey.OP_READ, ByteBuffer.allocate(4096));
                    }
                } else {
                    echo(key);
                }
            }
        }
    }

    private static void echo(SelectionKey key) throws IOException {
        SocketChannel channel = (SocketChannel) key.channel();
        ByteBuffer buffer = (ByteBuffer) key.attachment();
        if (key.isReadable() && channel.read(buffer) < 0) {
            channel.close();
            return;
        }
        buffer.flip();
        channel.write(buffer);
        buffer.compact();
        int wanted = buffer.hasRemaining() ? SelectionKey.OP_READ : 0;
        key.interestOps(buffer.position() > 0 ? wanted | SelectionKey.OP_WRITE : wanted);
    }

    /** Prints the time of a request of 64 bytes, in nanoseconds. */
    private static void rate(InetSocketAddress to, int requests) throws IOException {
        try (SocketChannel channel = SocketChannel.open(to)) {
            channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
            ByteBuffer buffer = ByteBuffer.allocateDirect(64);
            long start = System.nanoTime();
            for (int i = 0; i < requests; i++) {
                buffer.clear();
                while (buffer.hasRemaining()) {
                    channel.write(buffer);
                }
                buffer.clear();
                while (buffer.hasRemaining()) {
                    if (channel.read(buffer) < 0) {
                        throw new IOException("the server ended");
                    }
                }
            }
            System.out.println((System.nanoTime() - start) / requests);
        }
    }

    private static final class Progress {
        int sent;
        int received;
    }

    private static void ask(InetSocketAddress to) throws IOException {
        Selector selector = Selector.open();
        for (int i = 0; i < CLIENTS; i++) {
            SocketChannel channel = SocketChannel.open();
            channel.configureBlocking(false);
            int wanted = channel.connect(to) ? SelectionKey.OP_WRITE : SelectionKey.OP_CONNECT;
            channel.register(selector, wanted, new Progress());
        }
        int left = CLIENTS;
        ByteBuffer buffer = ByteBuffer.allocate(4096);
        while (left > 0) {
            if (selector.select(60_000) == 0) {
                throw new IOException("nothing happened for a minute");
            }
            for (Iterator<SelectionKey> keys = selector.selectedKeys().iterator(); keys.hasNext(); keys.remove()) {
                SelectionKey key = keys.next();
                SocketChannel channel = (SocketChannel) key.channel();
                Progress progress = (Progress) key.attachment();
                if (key.isConnectable()) {
                    channel.finishConnect();
                    key.interestOps(SelectionKey.OP_READ | SelectionKey.OP_WRITE);
                }
                if (key.isWritable() && progress.sent < BYTES) {
                    buffer.clear();
                    while (buffer.hasRemaining() && progress.sent + buffer.position() < BYTES) {
                        buffer.put((byte) ((progress.sent + buffer.position()) * 7));
                    }
                    buffer.flip();
                    progress.sent += channel.write(buffer);
                    if (progress.sent == BYTES) {
                        key.interestOps(SelectionKey.OP_READ);
                    }
                }
                if (key.isValid() && key.isReadable()) {
                    buffer.clear();
                    if (channel.read(buffer) < 0) {
                        throw new IOException("the server ended after " + progress.received + " bytes");
                    }
                    buffer.flip();
                    while (buffer.hasRemaining()) {
                        if (buffer.get() != (byte) (progress.received++ * 7)) {
                            throw new IOException("byte " + progress.received + " is wrong");
                        }
                    }
                    if (progress.received == BYTES) {
                        channel.close();
                        left--;
                    }
                }
            }
        }
        System.out.println(CLIENTS + " times " + BYTES + " bytes came back");
    }
}
