package slotwise;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.NoSuchElementException;
import java.util.TreeMap;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.SparkContext;
import org.apache.spark.executor.ExecutorMetrics;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.paths.SparkPath;
import org.apache.spark.scheduler.AccumulableInfo;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorMetricsUpdate;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.streaming.runtime.FileStreamSource;
import org.apache.spark.sql.execution.streaming.runtime.FileStreamSourceLog;
import org.apache.spark.status.AppStatusStore;
import org.apache.spark.status.api.v1.ExecutorSummary;
import org.apache.spark.status.api.v1.JobData;
import org.apache.spark.status.api.v1.StageData;
import org.apache.spark.util.AccumulatorV2;

/** Figures of Spark's, many in one call. What is answered is JSON. */
public final class Load {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Pattern BATCH = Pattern.compile("^batch = (\\d+)", Pattern.MULTILINE);
    private static final int LATEST_JOBS = 32;
    private static final Class[] NONE = new Class[0];
    private static final Object[] NOTHING = new Object[0];
    private static final long SETTLE_NS = 1000000000L;
    private static final long POLL_MS = 5;
    private static final ConcurrentHashMap KEEP_STATE = new ConcurrentHashMap();
    private final SparkContext context;
    private final AppStatusStore store;
    private final WeakHashMap waiting = new WeakHashMap();
    private final Tasks tasks = new Tasks();
    private Heaps heaps;

    /** withTasks: what each task did is noted from now on, in the queue in which Spark's store learns of it: before it knows
     * of the end of a job, all tasks of that are noted. */
    public Load(SparkContext context, boolean withTasks) {
        this.context = context;
        this.store = context.statusStore();
        if (withTasks) context.listenerBus().addToStatusQueue(tasks);
    }

    // ---- the stages of a batch

    /** Spark's store learns of a job's end a moment after the job's caller does: this waits for it. */
    public String stages(String run, long batch) throws Exception {
        int[] jobs = context.statusTracker().getJobIdsForGroup(run);
        Arrays.sort(jobs);
        TreeMap found = new TreeMap();
        for (int at = jobs.length - 1; at >= 0 && at >= jobs.length - LATEST_JOBS; at--) {
            JobData job = job(jobs[at]);
            long number = job == null ? -1 : batchOf(job);
            if (number < 0 || number > batch) continue;
            if (number < batch) break;
            long deadline = System.nanoTime() + SETTLE_NS;
            while (job != null && job.status().toString().equals("RUNNING") && System.nanoTime() < deadline) {
                Thread.sleep(POLL_MS);
                job = job(jobs[at]);
            }
            if (job == null) continue;
            for (scala.collection.Iterator ids = job.stageIds().iterator(); ids.hasNext(); ) {
                int id = ((Integer) ids.next()).intValue();
                ArrayList stage = stage(id);
                if (stage != null) found.put(Integer.valueOf(id), stage);
            }
        }
        return JSON.writeValueAsString(found.values());
    }

    /** How many tasks of a batch are done, and how many are known: those too of stages that have not begun. */
    public String tasks(String run, long batch) throws Exception {
        int[] jobs = context.statusTracker().getJobIdsForGroup(run);
        Arrays.sort(jobs);
        int done = 0;
        int known = 0;
        for (int at = jobs.length - 1; at >= 0 && at >= jobs.length - LATEST_JOBS; at--) {
            JobData job = job(jobs[at]);
            long number = job == null ? -1 : batchOf(job);
            if (number < 0 || number > batch) continue;
            if (number < batch) break;
            int ofJob = job.numTasks() - job.numSkippedTasks();
            // Those of a stage that runs again are counted twice.
            done += Math.min(ofJob, job.numCompletedTasks());
            known += ofJob;
        }
        return JSON.writeValueAsString(new int[] {done, known});
    }

    private JobData job(int id) {
        try {
            return store.job(id);
        } catch (NoSuchElementException error) {
            // Spark keeps a limited number of jobs.
            return null;
        }
    }

    private static long batchOf(JobData job) {
        if (job.description().isEmpty()) return -1;
        Matcher text = BATCH.matcher((String) job.description().get());
        return text.find() ? Long.parseLong(text.group(1)) : -1;
    }

    private ArrayList stage(int id) {
        StageData data;
        try {
            data = store.lastStageAttempt(id);
        } catch (NoSuchElementException error) {
            return null;
        }
        if (data.status().toString().equals("SKIPPED")) return null;
        ArrayList rdds = new ArrayList();
        for (scala.collection.Iterator ids = data.rddIds().iterator(); ids.hasNext(); ) rdds.add(ids.next());
        ArrayList stage = new ArrayList();
        stage.add(Integer.valueOf(id));
        stage.add(Integer.valueOf(data.numTasks()));
        stage.add(Long.valueOf(data.executorRunTime()));
        stage.add(rdds);
        stage.add(Long.valueOf(data.shuffleReadRecords()));
        stage.add(Long.valueOf(data.shuffleWriteRecords()));
        stage.add(Long.valueOf(data.outputRecords()));
        stage.add(Long.valueOf(data.inputBytes() + data.shuffleReadBytes()));
        stage.add(Long.valueOf(data.outputBytes() + data.shuffleWriteBytes()));
        stage.add(tasks.of(id, data.numTasks()));
        return stage;
    }

    // ---- the operators of a batch

    /** Each after the one that gets its rows, from the top and from the left, with those of the metrics named. */
    public String operators(QueryExecution planned, String names) throws Exception {
        ArrayList found = new ArrayList();
        walk(planned.executedPlan(), names.split(","), found);
        return JSON.writeValueAsString(found);
    }

    private void walk(SparkPlan node, String[] names, ArrayList found) {
        LinkedHashMap figures = new LinkedHashMap();
        LinkedHashMap byTask = new LinkedHashMap();
        scala.collection.immutable.Map metrics = node.metrics();
        for (int at = 0; at < names.length; at++) {
            scala.Option metric = metrics.get(names[at]);
            if (metric.isEmpty()) continue;
            AccumulatorV2 counter = (AccumulatorV2) metric.get();
            figures.put(names[at], counter.value());
            long[] each = tasks.counted(counter.id());
            if (each != null) byTask.put(names[at], each);
        }
        String kind = node.getClass().getSimpleName();
        ArrayList operator = new ArrayList();
        operator.add(kind);
        operator.add(Integer.valueOf(node.children().size()));
        operator.add(Integer.valueOf(isRepartition(node, kind) ? node.execute().id() : -1));
        operator.add(Boolean.valueOf(keepsState(node.getClass())));
        operator.add(figures);
        operator.add(byTask);
        found.add(operator);
        for (scala.collection.Iterator children = node.children().iterator(); children.hasNext(); ) {
            walk((SparkPlan) children.next(), names, found);
        }
    }

    private static boolean isRepartition(SparkPlan node, String kind) {
        if (!kind.equals("CoalesceExec") && !kind.equals("ShuffleExchangeExec")) return false;
        scala.Option link = node.logicalLink();
        if (link.isEmpty()) return false;
        LogicalPlan logical = (LogicalPlan) link.get();
        return logical.isStreaming() && logical.getClass().getSimpleName().startsWith("Repartition");
    }

    /** What is a StateStoreWriter of Spark's, which the versions of Spark have in different packages. */
    private static boolean keepsState(Class kind) {
        Boolean known = (Boolean) KEEP_STATE.get(kind);
        if (known == null) {
            try {
                kind.getMethod("getProgress", new Class[0]);
                known = Boolean.TRUE;
            } catch (NoSuchMethodException error) {
                known = Boolean.FALSE;
            }
            KEEP_STATE.put(kind, known);
        }
        return known.booleanValue();
    }

    // ---- files that wait

    /**
     * Of the source of files at ``place`` among those of a query: how many files no batch up to number ``end`` of its
     * log has read, their bytes, and the bytes of those that the batches behind number ``after`` have read; -1: some
     * are not known. ``look``: by a look at the directories, or else by what is left of those that the last one found.
     */
    public String waitingFiles(Object query, int place, long after, long end, boolean look) throws Exception {
        scala.collection.Seq all = (scala.collection.Seq) query.getClass().getMethod("sources", NONE).invoke(query, NOTHING);
        FileStreamSource source = (FileStreamSource) ((scala.collection.Seq) all.distinct()).apply(place);
        FileStreamSourceLog log = (FileStreamSourceLog) own(source, "metadataLog");
        HashMap sizes = look ? look(source, log, end) : (HashMap) waiting.get(source);
        HashMap left = (HashMap) waiting.get(source);
        long read = 0, bytes = 0;
        for (long number = after + 1; number <= end; number++) {
            for (Iterator files = readIn(log, number).iterator(); files.hasNext(); ) {
                Object file = files.next();
                Long size = (Long) sizes.get(file);
                read = size == null || read < 0 ? -1 : read + size.longValue();
                left.remove(file);
            }
        }
        for (Iterator files = left.values().iterator(); files.hasNext(); ) bytes += ((Long) files.next()).longValue();
        return JSON.writeValueAsString(new long[] {left.size(), bytes, read});
    }

    /** Sizes of the files that have been read. The source plans batches meanwhile: what those take still waits. */
    private HashMap look(FileStreamSource source, FileStreamSourceLog log, long end) throws Exception {
        scala.collection.Iterator listed = ((scala.collection.Seq) own(source, "fetchAllFiles")).iterator();
        HashMap read = new HashMap();
        HashMap left = new HashMap();
        long newest;
        synchronized (source) {
            while (listed.hasNext()) {
                // Its class is not for others: path, size, time.
                scala.Product file = (scala.Product) listed.next();
                SparkPath path = (SparkPath) file.productElement(0);
                boolean isNew = source.seenFiles().isNewFile(path, ((Long) file.productElement(2)).longValue());
                (isNew ? left : read).put(path, file.productElement(1));
            }
            newest = ((Long) own(source, "metadataLogCurrentOffset")).longValue();
        }
        for (long number = end + 1; number <= newest; number++) {
            for (Iterator files = readIn(log, number).iterator(); files.hasNext(); ) {
                Object file = files.next();
                Long size = (Long) read.get(file);
                left.put(file, size == null ? Long.valueOf(0) : size);
            }
        }
        waiting.put(source, left);
        return read;
    }

    private static ArrayList readIn(FileStreamSourceLog log, long number) {
        scala.Option some = scala.Option.apply(Long.valueOf(number));
        scala.Tuple2[] batches = log.get(some, some);
        ArrayList files = new ArrayList();
        for (int at = 0; at < batches.length; at++) {
            FileStreamSource.FileEntry[] batch = (FileStreamSource.FileEntry[]) batches[at]._2();
            for (int one = 0; one < batch.length; one++) files.add(batch[one].sparkPath());
        }
        return files;
    }

    /** What a method of Spark's answers that it keeps to itself. */
    private static Object own(FileStreamSource source, String name) throws Exception {
        Method method = FileStreamSource.class.getDeclaredMethod(name, NONE);
        method.setAccessible(true);
        return method.invoke(source, NOTHING);
    }

    // ---- executors

    /** What the driver itself has is asked of its JVM. Of other heaps Spark tells in what executors send now and then. */
    public String executors() throws Exception {
        if (heaps == null) context.addSparkListener(heaps = new Heaps());
        ArrayList found = new ArrayList();
        scala.collection.Iterator each = store.executorList(true).iterator();
        while (each.hasNext()) {
            ExecutorSummary one = (ExecutorSummary) each.next();
            boolean isDriver = one.id().equals("driver");
            Runtime runtime = Runtime.getRuntime();
            long[] told = heaps.of(one.id());
            String place = one.hostPort();
            int colon = place.lastIndexOf(':');
            ArrayList load = new ArrayList();
            load.add(one.id());
            load.add(colon < 0 ? place : place.substring(0, colon));
            load.add(Long.valueOf(isDriver ? runtime.totalMemory() - runtime.freeMemory() : told[0]));
            load.add(Long.valueOf(isDriver ? runtime.maxMemory() : ((long) context.executorMemory()) << 20));
            // Spark's own sum has what was collected during tasks, and comes sooner.
            load.add(Long.valueOf(isDriver ? gcMs() : Math.max(told[1], one.totalGCTime())));
            load.add(Long.valueOf(one.diskUsed()));
            load.add(Integer.valueOf(one.totalCores()));
            load.add(Integer.valueOf(one.completedTasks()));
            load.add(Integer.valueOf(one.failedTasks()));
            load.add(Long.valueOf(one.totalDuration()));
            found.add(load);
        }
        return JSON.writeValueAsString(found);
    }

    private static long gcMs() {
        long sum = 0;
        for (Iterator all = ManagementFactory.getGarbageCollectorMXBeans().iterator(); all.hasNext(); ) {
            sum += Math.max(0, ((GarbageCollectorMXBean) all.next()).getCollectionTime());
        }
        return sum;
    }
}

public final class Heaps extends SparkListener {
    private final ConcurrentHashMap told = new ConcurrentHashMap();

    /** The used heap, and the time in garbage collection since the start, of tasks or not. */
    public long[] of(String executor) {
        long[] known = (long[]) told.get(executor);
        return known == null ? new long[] {0, 0} : known;
    }

    public void onExecutorMetricsUpdate(SparkListenerExecutorMetricsUpdate update) {
        long heap = 0, gc = 0;
        for (scala.collection.Iterator each = update.executorUpdates().iterator(); each.hasNext(); ) {
            ExecutorMetrics peak = (ExecutorMetrics) ((scala.Tuple2) each.next())._2();
            heap = Math.max(heap, peak.getMetricValue("JVMHeapMemory"));
            gc = Math.max(gc, peak.getMetricValue("TotalGCTime"));
        }
        if (heap > 0) told.put(update.execId(), new long[] {heap, gc});
    }
}

/** What each task of the latest stages did, by the number of its partition: in a stage that runs again for what was lost,
 * and in a job on some partitions, tasks are counted otherwise. */
public final class Tasks extends SparkListener {
    private static final int STAGES = 256;
    private static final int NUMBERS = 2000000;
    // TASKS_TOLD of app/model/measured.py: of more nothing is told.
    private static final int MOST = 2000;
    // Those that had a task last are kept: other queries may run many stages during a long one.
    private final LinkedHashMap stages = new LinkedHashMap(16, 0.75f, true);
    private final HashMap counters = new HashMap();
    private int numbers;

    /** By number: run time in ms, records read and written, bytes read and written. Nothing if not all of the last run of
     * the stage, which has so many, were noted. */
    public synchronized long[][] of(int stage, int tasks) {
        Stage known = (Stage) stages.get(Integer.valueOf(stage));
        return known == null || known.tasks.size() < tasks ? new long[0][] : known.columns();
    }

    /** What each task of its stage added to an accumulator of Spark SQL; null: none did. */
    public synchronized long[] counted(long accumulator) {
        return (long[]) counters.get(Long.valueOf(accumulator));
    }

    public synchronized void onTaskEnd(SparkListenerTaskEnd end) {
        TaskMetrics did = end.taskMetrics();
        int number = end.taskInfo().partitionId();
        if (did == null || !end.taskInfo().successful() || number >= MOST) return;
        Integer id = Integer.valueOf(end.stageId());
        Stage stage = (Stage) stages.get(id);
        if (stage == null) stages.put(id, stage = new Stage());
        numbers += stage.put(number, new long[] {
            did.executorRunTime(),
            did.inputMetrics().recordsRead() + did.shuffleReadMetrics().recordsRead(),
            did.outputMetrics().recordsWritten() + did.shuffleWriteMetrics().recordsWritten(),
            did.inputMetrics().bytesRead() + did.shuffleReadMetrics().totalBytesRead(),
            did.outputMetrics().bytesWritten() + did.shuffleWriteMetrics().bytesWritten(),
        });
        for (scala.collection.Iterator all = end.taskInfo().accumulables().iterator(); all.hasNext(); ) {
            AccumulableInfo one = (AccumulableInfo) all.next();
            if (one.metadata().isEmpty() || one.update().isEmpty() || !(one.update().get() instanceof Long)) continue;
            Long counter = Long.valueOf(one.id());
            long[] before = (long[]) counters.get(counter);
            int length = before == null ? 0 : before.length;
            long[] each = number < length ? before : new long[Math.max(number + 1, 2 * length)];
            if (before == null) stage.counters.add(counter);
            if (each != before && before != null) System.arraycopy(before, 0, each, 0, length);
            each[number] += ((Long) one.update().get()).longValue();
            counters.put(counter, each);
            numbers += each.length - length;
        }
        while (stages.size() > 1 && (stages.size() > STAGES || numbers > NUMBERS)) forgetOldest();
    }

    private void forgetOldest() {
        Iterator oldest = stages.values().iterator();
        Stage stage = (Stage) oldest.next();
        oldest.remove();
        numbers -= stage.numbers;
        for (Iterator all = stage.counters.iterator(); all.hasNext(); ) {
            numbers -= ((long[]) counters.remove(all.next())).length;
        }
    }
}

public final class Stage {
    private static final int COLUMNS = 5;
    final ArrayList counters = new ArrayList();
    final TreeMap tasks = new TreeMap();
    int numbers;

    int put(int number, long[] did) {
        int more = tasks.put(Integer.valueOf(number), did) == null ? COLUMNS : 0;
        numbers += more;
        return more;
    }

    long[][] columns() {
        long[][] columns = new long[COLUMNS][((Integer) tasks.lastKey()).intValue() + 1];
        for (Iterator all = tasks.keySet().iterator(); all.hasNext(); ) {
            Integer number = (Integer) all.next();
            long[] did = (long[]) tasks.get(number);
            for (int at = 0; at < COLUMNS; at++) columns[at][number.intValue()] = did[at];
        }
        return columns;
    }
}
