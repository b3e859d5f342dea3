package slotwise;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;
import java.util.LinkedHashSet;
import java.util.function.ObjLongConsumer;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.execution.streaming.Sink;

public final class GatedSink implements Sink {
    private final Sink own;
    private final ObjLongConsumer passage;

    public GatedSink(Sink own, ObjLongConsumer passage) {
        this.own = own;
        this.passage = passage;
    }

    public void addBatch(long batchId, org.apache.spark.sql.Dataset rows) {
        passage.accept("begin", batchId);
        own.addBatch(batchId, rows);
        passage.accept("end", batchId);
    }

    public String toString() {
        return own.toString();
    }
}

public final class GatedFunction extends scala.runtime.AbstractFunction2 {
    private final scala.Function2 own;
    private final ObjLongConsumer passage;

    public GatedFunction(scala.Function2 own, ObjLongConsumer passage) {
        this.own = own;
        this.passage = passage;
    }

    public Object apply(Object rows, Object batchId) {
        passage.accept("begin", ((Long) batchId).longValue());
        Object result = own.apply(rows, batchId);
        passage.accept("end", ((Long) batchId).longValue());
        return result;
    }
}

public final class GatedWrite implements StreamingWrite {
    private final StreamingWrite own;
    private final ObjLongConsumer passage;
    private final Object execution;

    public GatedWrite(StreamingWrite own, ObjLongConsumer passage, Object execution) {
        this.own = own;
        this.passage = passage;
        this.execution = execution;
    }

    public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
        passage.accept("begin", plannedBatch());
        return own.createStreamingWriterFactory(info);
    }

    private long plannedBatch() {
        try {
            Object planned = got(execution, "lastExecution");
            return ((Long) got(planned, "currentBatchId")).longValue();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static Object got(Object instance, String name) throws Exception {
        return instance.getClass().getMethod(name, new Class[0]).invoke(instance, new Object[0]);
    }

    public boolean useCommitCoordinator() {
        return own.useCommitCoordinator();
    }

    public void commit(long batchId, WriterCommitMessage[] messages) {
        passage.accept("commit", batchId);
        own.commit(batchId, messages);
        passage.accept("end", batchId);
    }

    public void abort(long batchId, WriterCommitMessage[] messages) {
        own.abort(batchId, messages);
    }

    public String toString() {
        return own.toString();
    }
}

public final class Gated implements InvocationHandler {
    private final Object own;
    private final ObjLongConsumer passage;
    private final Object execution;

    public Gated(Object own, ObjLongConsumer passage, Object execution) {
        this.own = own;
        this.passage = passage;
        this.execution = execution;
    }

    public static Object of(Object own, ObjLongConsumer passage, Object execution) {
        LinkedHashSet found = new LinkedHashSet();
        for (Class kind = own.getClass(); kind != null; kind = kind.getSuperclass()) {
            Class[] interfaces = kind.getInterfaces();
            for (int at = 0; at < interfaces.length; at++) {
                if (Modifier.isPublic(interfaces[at].getModifiers())) found.add(interfaces[at]);
            }
        }
        Class[] all = (Class[]) found.toArray(new Class[0]);
        return Proxy.newProxyInstance(own.getClass().getClassLoader(), all, new Gated(own, passage, execution));
    }

    public Object invoke(Object proxy, Method method, Object[] given) throws Throwable {
        Object result;
        try {
            result = method.invoke(own, given);
        } catch (InvocationTargetException error) {
            throw error.getCause();
        }
        if (result instanceof StreamingWrite) return new GatedWrite((StreamingWrite) result, passage, execution);
        if (result instanceof WriteBuilder || result instanceof Write) return of(result, passage, execution);
        return result;
    }
}
