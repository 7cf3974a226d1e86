import io.kaitai.struct.ByteBufferKaitaiStream;
import java.nio.file.Files;
import java.nio.file.Path;

/** Reads messages with what Kaitai has generated: java Measure GRAMMAR ROUNDS FILE... One line for each file: nanoseconds. */
public final class Measure {
    private static final int CALLS = 20_000;
    private static final int BATCHES = 10;
    /** Batches before the first that counts, so that the machine code is the final one. */
    private static final int WARM_BATCHES = 100;

    private static long sum;

    public static void main(String[] args) throws Exception {
        int rounds = Integer.parseInt(args[1]);
        byte[][] messages = new byte[args.length - 2][];
        for (int at = 0; at < messages.length; at++) {
            messages[at] = Files.readAllBytes(Path.of(args[at + 2]));
        }
        for (int warm = 0; warm < WARM_BATCHES; warm++) {
            for (byte[] message : messages) {
                batch(args[0], message);
            }
        }
        for (byte[] message : messages) {
            double[] medians = new double[rounds];
            for (int round = 0; round < rounds; round++) {
                double best = Double.MAX_VALUE;
                for (int batch = 0; batch < BATCHES; batch++) {
                    best = Math.min(best, batch(args[0], message));
                }
                medians[round] = best;
            }
            java.util.Arrays.sort(medians);
            System.out.println(medians[rounds / 2]);
        }
        System.err.println(sum);
    }

    private static double batch(String grammar, byte[] message) {
        boolean isMemcached = grammar.equals("memcached_binary");
        long started = System.nanoTime();
        for (int call = 0; call < CALLS; call++) {
            ByteBufferKaitaiStream stream = new ByteBufferKaitaiStream(message);
            if (isMemcached) {
                MemcachedBinary request = new MemcachedBinary(stream);
                sum += request.key().length + request.totalLen();
            } else {
                PcapRecord record = new PcapRecord(stream);
                sum += record.packet().length + record.size();
            }
            if (stream.pos() != message.length) {
                throw new IllegalStateException("a message is whole");
            }
        }
        return (System.nanoTime() - started) / (double) CALLS;
    }
}
