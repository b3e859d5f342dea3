package slotwise;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.local.LocalSchedulerBackend;

/**
 * How many tasks Spark's local scheduler runs at once, changed while it runs.
 *
 * That scheduler counts its free cores in the thread of its endpoint. They are changed here while the endpoint handles no
 * message and cannot begin with one. Below zero means that tasks run on cores that were taken: nothing starts until they
 * have ended.
 */
public final class Cores {
    private static final String NAME = "LocalSchedulerBackendEndpoint";
    private final LocalSchedulerBackend backend;
    private final Object inbox;
    private final Field handled;
    private final Object endpoint;
    private final Method read;
    private final Method write;
    private int now;

    /** `now`: as many as the context was started with. */
    public Cores(SparkContext context, int now) throws Exception {
        this.backend = (LocalSchedulerBackend) field(context, "_schedulerBackend");
        this.now = now;
        Object dispatcher = field(field(field(context, "_env"), "rpcEnv"), "dispatcher");
        Object loop = ((Map) field(dispatcher, "endpoints")).get(NAME);
        this.inbox = ((Map) field(loop, "endpoints")).get(NAME);
        this.handled = declared(inbox, "numActiveThreads");
        this.endpoint = field(inbox, "endpoint");
        String free = "org$apache$spark$scheduler$local$LocalEndpoint$$freeCores";
        this.read = endpoint.getClass().getMethod(free, new Class[0]);
        this.write = endpoint.getClass().getMethod(free + "_$eq", new Class[] {read.getReturnType()});
    }

    public void set(int cores) throws Exception {
        while (!tried(cores)) Thread.sleep(1L);
        backend.reviveOffers();
    }

    /** How many of them no task has; below zero, how many tasks are still to leave theirs. */
    public int free() throws Exception {
        return ((Number) value()).intValue();
    }

    private boolean tried(int cores) throws Exception {
        synchronized (inbox) {
            if (handled.getInt(inbox) != 0) return false;
            int more = cores - now;
            Object free = value();
            // Later versions of Spark count in fractions.
            Object changed =
                free instanceof scala.math.BigDecimal
                    ? (Object) ((scala.math.BigDecimal) free).$plus(scala.math.BigDecimal.exact(more))
                    : (Object) Integer.valueOf(((Integer) free).intValue() + more);
            write.invoke(endpoint, new Object[] {changed});
            now = cores;
            return true;
        }
    }

    private Object value() throws Exception {
        return read.invoke(endpoint, new Object[0]);
    }

    private static Object field(Object of, String name) throws Exception {
        return declared(of, name).get(of);
    }

    private static Field declared(Object of, String name) throws Exception {
        for (Class kind = of.getClass(); kind != null; kind = kind.getSuperclass()) {
            Field[] fields = kind.getDeclaredFields();
            for (int at = 0; at < fields.length; at++) {
                if (fields[at].getName().equals(name)) {
                    fields[at].setAccessible(true);
                    return fields[at];
                }
            }
        }
        throw new NoSuchFieldException(name);
    }
}
