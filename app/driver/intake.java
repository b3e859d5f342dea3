package slotwise;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.Map;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.read.streaming.CompositeReadLimit;
import org.apache.spark.sql.connector.read.streaming.Offset;
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
    /** The limit of a source in Python. */
    private static final String OF_PYTHON = "PythonStreamingSourceReadLimit";
    private final Object execution;
    private final ArrayList sources = new ArrayList();
    /** The program's own limits. */
    private final IdentityHashMap own = new IdentityHashMap();

    /** For the thread of the query alone, which makes the plan if there is none yet: its sources come with that. */
    public Intake(Object execution) throws Exception {
        this.execution = execution;
        // Spark itself makes the plan in this session.
        scala.Option before = SparkSession.getActiveSession();
        SparkSession.setActiveSession((SparkSession) got(execution, "sparkSessionForStream"));
        try {
            got(execution, "logicalPlan");
        } finally {
            if (before.isDefined()) SparkSession.setActiveSession((SparkSession) before.get());
            else SparkSession.clearActiveSession();
        }
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
        String kind = kind(node);
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
        if (!kind(trigger).equals("ProcessingTimeTrigger")) return 0;
        return ((Number) got(trigger, "intervalMs")).longValue();
    }

    /** What Spark calls each source, in the order of the plan. */
    public String names() throws Exception {
        ArrayList found = new ArrayList();
        for (int place = 0; place < sources.size(); place++) found.add(sources.get(place).toString());
        return JSON.writeValueAsString(found);
    }

    /**
     * Of each source, in the order of the plan: in what it can be limited, "": its options decide alone; how much of that
     * the batch has which has just run; the program's own limit; what it waits for at least; and its rows in the batch.
     * -1: that is not known, or there is none. Nothing of a source without admission control.
     */
    public String taken() throws Exception {
        ArrayList found = new ArrayList();
        for (int place = 0; place < sources.size(); place++) {
            Object source = sources.get(place);
            ArrayList told = new ArrayList();
            ReadLimit limit = (ReadLimit) own.get(source);
            if (source instanceof SupportsAdmissionControl && !kind(source).equals("RatePerMicroBatchStream")) {
                String unit = unit(source);
                long rows = rows(source);
                told.add(unit);
                told.add(Long.valueOf(unit.equals("rows") ? rows : isOfFiles(source) ? files(source) : -1));
                told.add(Long.valueOf(unit.equals("") ? -1 : most(limit)));
                told.add(Long.valueOf(least(limit)));
                told.add(Long.valueOf(rows));
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
        execution.getClass().getMethod("uniqueSources_$eq", new Class[] {scala.collection.immutable.Map.class})
            .invoke(execution, new Object[] {changed});
    }

    private String unit(Object source) throws Exception {
        ReadLimit limit = (ReadLimit) own.get(source);
        if (limit == null) return "";
        // A source may fail with a limit of a kind that it does not know: so it gets the one that it has by itself.
        if (limit instanceof ReadMaxFiles) return "files";
        if (isOfFiles(source)) return limit instanceof ReadAllAvailable && !latestFirst(source) ? "files" : "";
        if (kind(source).equals("KafkaMicroBatchStream")) return "rows";
        return most(limit) >= 0 && (limit instanceof ReadMaxRows || kind(limit).equals(OF_PYTHON)) ? "rows" : "";
    }

    private static boolean isOfFiles(Object source) {
        return kind(source).equals("FileStreamSource");
    }

    /** It passes over files that are older by maxFileAge than the newest it has read, unless its options limit it. */
    private static boolean latestFirst(Object source) throws Exception {
        return ((Boolean) got(privately(source, "sourceOptions"), "latestFirst")).booleanValue();
    }

    private static String kind(Object instance) {
        return instance.getClass().getSimpleName();
    }

    private static long most(ReadLimit limit) throws Exception {
        if (kind(limit).equals(OF_PYTHON)) {
            Map told = (Map) JSON.readValue((String) got(limit, "json"), Map.class);
            Object rows = told.get("_type").equals("ReadMaxRows") ? told.get("max_rows") : null;
            return rows == null ? -1 : ((Number) rows).longValue();
        }
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

    private static long least(ReadLimit own) {
        ReadMinRows found = minRows(own);
        return found == null ? 0 : found.minRows();
    }

    private static ReadMinRows minRows(ReadLimit own) {
        if (own instanceof ReadMinRows) return (ReadMinRows) own;
        ReadLimit[] parts = own instanceof CompositeReadLimit
            ? ((CompositeReadLimit) own).getReadLimits() : new ReadLimit[0];
        for (int at = 0; at < parts.length; at++) {
            if (parts[at] instanceof ReadMinRows) return (ReadMinRows) parts[at];
        }
        return null;
    }

    /** At most so many rows, and at least as many as the program wants. */
    private static ReadLimit rowLimit(ReadLimit own, long most) throws Exception {
        if (kind(own).equals(OF_PYTHON)) {
            String told = "{\"_type\": \"ReadMaxRows\", \"max_rows\": " + most + "}";
            return (ReadLimit) own.getClass().getConstructor(new Class[] {String.class}).newInstance(new Object[] {told});
        }
        ReadLimit limit = ReadLimit.maxRows(most);
        ReadMinRows least = minRows(own);
        return least == null ? limit : ReadLimit.compositeLimit(new ReadLimit[] {least, limit});
    }

    /** The files of the batch: the source numbers those that it gives at once. */
    private long files(Object source) throws Exception {
        long start = number("committedOffsets", source), end = number("availableOffsets", source);
        Object log = privately(source, "metadataLog");
        Method get = log.getClass().getMethod("get", new Class[] {scala.Option.class, scala.Option.class});
        Object[] from = new Object[] {scala.Option.apply(Long.valueOf(start + 1)), scala.Option.apply(Long.valueOf(end))};
        scala.Tuple2[] batches = end > start ? (scala.Tuple2[]) get.invoke(log, from) : new scala.Tuple2[0];
        long found = 0;
        for (int at = 0; at < batches.length; at++) found += ((Object[]) batches[at]._2()).length;
        return found;
    }

    private long number(String offsets, Object source) throws Exception {
        scala.Option offset = ((scala.collection.Map) got(execution, offsets)).get(source);
        if (offset.isEmpty()) return -1;
        Map told = (Map) JSON.readValue(((Offset) offset.get()).json(), Map.class);
        return ((Number) told.get("logOffset")).longValue();
    }

    /** The rows that tasks have read of it. A source that is used twice gives them to each. */
    private long rows(Object source) throws Exception {
        Object planned = got(execution, "lastExecution");
        return planned == null ? 0 : rows(source, (SparkPlan) got(planned, "executedPlan"));
    }

    private static long rows(Object source, SparkPlan node) throws Exception {
        long found = 0;
        if (node.children().isEmpty() && streamOf(node) == source) {
            scala.Option metric = node.metrics().get("numOutputRows");
            if (metric.isDefined()) found = ((Number) ((AccumulatorV2) metric.get()).value()).longValue();
        }
        for (scala.collection.Iterator children = node.children().iterator(); children.hasNext(); ) {
            found = Math.max(found, rows(source, (SparkPlan) children.next()));
        }
        return found;
    }

    /** The stream that an operator reads. */
    private static Object streamOf(SparkPlan node) throws Exception {
        if (!kind(node).endsWith("ScanExec")) return null;
        try {
            scala.Option stream = (scala.Option) got(node, "getStream");
            return stream.isEmpty() ? null : stream.get();
        } catch (NoSuchMethodException error) {
            return null;
        }
    }

    private scala.collection.immutable.Map limits() throws Exception {
        return (scala.collection.immutable.Map) got(execution, "uniqueSources");
    }

    private static Object got(Object instance, String name) throws Exception {
        return instance.getClass().getMethod(name, NONE).invoke(instance, NOTHING);
    }

    /** What a method of Spark's answers that it keeps to itself. */
    private static Object privately(Object instance, String name) throws Exception {
        Method method = instance.getClass().getDeclaredMethod(name, NONE);
        method.setAccessible(true);
        return method.invoke(instance, NOTHING);
    }
}
