package slotwise;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.read.streaming.CompositeReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxFiles;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.ReadMinRows;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.util.AccumulatorV2;

/** How much each source of a running query gives to a batch. For the thread of the query, between two batches. */
public final class Intake {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Class[] NONE = new Class[0];
    private static final Object[] NOTHING = new Object[0];
    private final Object execution;
    private final ArrayList sources = new ArrayList();
    /** The program's own limits. */
    private final IdentityHashMap own = new IdentityHashMap();
    /** Of sources of files: the number of the newest batch of files that is known. */
    private final IdentityHashMap newest = new IdentityHashMap();

    public Intake(Object execution) throws Exception {
        this.execution = execution;
        scala.collection.Iterator each = ((scala.collection.Seq) ((scala.collection.Seq) got(execution, "sources")).distinct()).iterator();
        while (each.hasNext()) {
            Object source = each.next();
            sources.add(source);
            scala.Option limit = limits().get(source);
            if (limit.isDefined()) own.put(source, limit.get());
        }
    }

    /** Whether its batches decide which rows are late: it has a watermark, or joins two streams. */
    public boolean keepsTime() throws Exception {
        return keepsTime((LogicalPlan) got(execution, "logicalPlan"));
    }

    private static boolean keepsTime(LogicalPlan node) {
        if (!node.isStreaming()) return false;
        String kind = node.getClass().getSimpleName();
        if (kind.equals("EventTimeWatermark")) return true;
        int streams = 0;
        for (scala.collection.Iterator children = node.children().iterator(); children.hasNext(); ) {
            LogicalPlan child = (LogicalPlan) children.next();
            if (child.isStreaming()) streams++;
            if (keepsTime(child)) return true;
        }
        return kind.equals("Join") && streams > 1;
    }

    /** The least time between the starts of two batches, in ms. */
    public long intervalMs() throws Exception {
        Object trigger = got(execution, "trigger");
        if (!trigger.getClass().getSimpleName().equals("ProcessingTimeTrigger")) return 0;
        return ((Number) got(trigger, "intervalMs")).longValue();
    }

    /**
     * Of each source, in the order of the plan: in what it can be limited, how much of that the batch has which has just
     * run, -1: that is not known, and the program's own limit, -1: there is none. Nothing of a source that cannot be
     * limited.
     */
    public String taken() throws Exception {
        ArrayList found = new ArrayList();
        for (int place = 0; place < sources.size(); place++) {
            Object source = sources.get(place);
            ArrayList told = new ArrayList();
            String unit = unit(source);
            if (unit != null) {
                told.add(unit);
                told.add(Long.valueOf(unit.equals("rows") ? rows(source) : isOfFiles(source) ? files(source) : -1));
                told.add(Long.valueOf(most((ReadLimit) own.get(source))));
            }
            found.add(told);
        }
        return JSON.writeValueAsString(found);
    }

    /** Let the source at ``place`` give so much to the next batch that is planned; -1: what its program says. */
    public void limit(int place, long most) throws Exception {
        Object source = sources.get(place);
        ReadLimit before = (ReadLimit) own.get(source);
        ReadLimit limit = most < 0 ? before : unit(source).equals("files")
            ? ReadLimit.maxFiles((int) Math.min(most, Integer.MAX_VALUE)) : rowLimit(before, most);
        Object changed = limits().updated(source, limit);
        Method[] all = execution.getClass().getMethods();
        for (int at = 0; at < all.length; at++) {
            if (all[at].getName().equals("uniqueSources_$eq")) all[at].invoke(execution, new Object[] {changed});
        }
    }

    private String unit(Object source) {
        ReadLimit limit = (ReadLimit) own.get(source);
        if (limit == null || !(source instanceof SupportsAdmissionControl)) return null;
        // A source may fail with a limit of a kind that it does not know, and ignores what it need not follow.
        if (limit instanceof ReadMaxFiles || (isOfFiles(source) && limit instanceof ReadAllAvailable)) return "files";
        String kind = source.getClass().getSimpleName();
        if (kind.equals("KafkaMicroBatchStream")) return "rows";
        return limit instanceof ReadMaxRows && !kind.equals("RatePerMicroBatchStream") ? "rows" : null;
    }

    private static boolean isOfFiles(Object source) {
        return source.getClass().getSimpleName().equals("FileStreamSource");
    }

    private static long most(ReadLimit limit) {
        if (limit instanceof ReadMaxFiles) return ((ReadMaxFiles) limit).maxFiles();
        if (limit instanceof ReadMaxRows) return ((ReadMaxRows) limit).maxRows();
        long least = -1;
        if (limit instanceof CompositeReadLimit) {
            ReadLimit[] parts = ((CompositeReadLimit) limit).getReadLimits();
            for (int at = 0; at < parts.length; at++) {
                long part = most(parts[at]);
                if (part >= 0 && (least < 0 || part < least)) least = part;
            }
        }
        return least;
    }

    /** At most so many rows, and at least as many as the program wants. */
    private static ReadLimit rowLimit(ReadLimit own, long most) {
        ReadLimit limit = ReadLimit.maxRows(most);
        ReadLimit[] parts = own instanceof CompositeReadLimit
            ? ((CompositeReadLimit) own).getReadLimits() : new ReadLimit[] {own};
        for (int at = 0; at < parts.length; at++) {
            if (parts[at] instanceof ReadMinRows) return ReadLimit.compositeLimit(new ReadLimit[] {parts[at], limit});
        }
        return limit;
    }

    /** The files of the batch: the source numbers those that it has given to each. */
    private long files(Object source) throws Exception {
        long number = ((Number) own(source, "metadataLogCurrentOffset")).longValue();
        Object before = newest.put(source, Long.valueOf(number));
        if (number < 0 || (before != null && ((Long) before).longValue() == number)) return 0;
        Object log = own(source, "metadataLog");
        scala.Option some = scala.Option.apply(Long.valueOf(number));
        Method get = log.getClass().getMethod("get", new Class[] {scala.Option.class, scala.Option.class});
        scala.Tuple2[] batches = (scala.Tuple2[]) get.invoke(log, new Object[] {some, some});
        return batches.length == 0 ? 0 : ((Object[]) batches[0]._2()).length;
    }

    /** The rows that tasks have read of it. A source that is used twice gives them to each. */
    private long rows(Object source) throws Exception {
        Object planned = got(execution, "lastExecution");
        return planned == null ? 0 : rows(source, (SparkPlan) got(planned, "executedPlan"));
    }

    private static long rows(Object source, SparkPlan node) throws Exception {
        long found = 0;
        if (node.getClass().getSimpleName().equals("MicroBatchScanExec") && got(node, "stream") == source) {
            scala.Option metric = node.metrics().get("numOutputRows");
            if (metric.isDefined()) found = ((Number) ((AccumulatorV2) metric.get()).value()).longValue();
        }
        for (scala.collection.Iterator children = node.children().iterator(); children.hasNext(); ) {
            found = Math.max(found, rows(source, (SparkPlan) children.next()));
        }
        return found;
    }

    private scala.collection.immutable.Map limits() throws Exception {
        return (scala.collection.immutable.Map) got(execution, "uniqueSources");
    }

    private static Object got(Object instance, String name) throws Exception {
        return instance.getClass().getMethod(name, NONE).invoke(instance, NOTHING);
    }

    /** What a method of Spark's answers that it keeps to itself. */
    private static Object own(Object instance, String name) throws Exception {
        Method method = instance.getClass().getDeclaredMethod(name, NONE);
        method.setAccessible(true);
        return method.invoke(instance, NOTHING);
    }
}
