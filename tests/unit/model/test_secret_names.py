"""Which names of options are those of secrets, as the vendors write them, wherever they may be given."""

from __future__ import annotations

import pytest

from app.documents.graph import parse_document
from app.documents.program import parse_program
from app.model.graphdoc_program import graph_of
from app.model.masking import HIDDEN, is_secret, masked, masked_arguments, masked_document, masked_text
from app.model.secret_texts import secrets_of, without_secrets
from tests.unit.model.documents import document

SECRET = {
    "Kafka": """ssl.key.password ssl.keystore.password ssl.truststore.password ssl.keystore.key ssl.key.pem
        sasl.jaas.config sasl.password sasl.oauthbearer.client.secret
        sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.assertion.private.key.passphrase
        kafka.sasl.jaas.config listener.name.internal.ssl.key.password oauth.client.secret oauth.access.token
        oauth.refresh.token oauth.password.grant.password delegation.token.secret.key password.encoder.secret""",
    "schema registries": """basic.auth.user.info schema.registry.basic.auth.user.info bearer.auth.token
        value.converter.schema.registry.basic.auth.user.info schemaRegistryUserInfo --user-info
        BASIC_AUTH_USER_INFO bearer.auth.client.secret schema.registry.ssl.keystore.password
        schema.registry.ssl.key.password apicurio.auth.client.secret apicurio.registry.auth.password""",
    "JDBC": """password pwd userPwd sslpassword trustStorePassword keyStorePassword accessToken dbPassword
        clientCertificateKeyPassword oracle.net.wallet_password javax.net.ssl.keyStorePassword KeyStoreSecret
        trustCertificateKeyStorePassword keyVaultProviderClientKey connectionString PGPASSWORD MYSQL_PWD
        spark.hadoop.javax.jdo.option.ConnectionPassword hoodie.datasource.hive_sync.pass bindpw""",
    "S3 and the like": """fs.s3a.secret.key fs.s3a.access.key fs.s3a.session.token fs.s3a.session.key
        fs.s3a.bucket.b.secret.key fs.s3a.server-side-encryption.key fs.s3a.encryption.key fs.s3a.encryption.context
        fs.s3a.proxy.password fs.s3n.awsSecretAccessKey AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_ACCESS_KEY_ID
        awsSecretKey awsAccessKey kinesis.awsSecretKey awsSTSSessionToken fs.oss.accessKeySecret
        fs.oss.securityToken fs.cosn.userinfo.secretKey fs.obs.secret.key minio.secretkey""",
    "Azure": """fs.azure.account.key.store.dfs.core.windows.net fs.azure.sas.c.store.blob.core.windows.net
        fs.azure.sas.fixed.token.store.dfs.core.windows.net fs.azure.account.oauth2.client.secret
        fs.azure.account.oauth2.client.secret.store.dfs.core.windows.net fs.azure.account.oauth2.refresh.token
        fs.azure.account.oauth2.user.password fs.adl.oauth2.credential fs.adl.oauth2.refresh.token AccountKey
        SharedAccessKey SharedAccessSignature eventhubs.connectionString AZURE_STORAGE_KEY AZURE_CLIENT_SECRET
        AZURE_STORAGE_CONNECTION_STRING fs.azure.encryption.encoded.client-provided-key spark.cosmos.accountKey
        spark.cosmos.auth.aad.clientSecret spark.synapse.linkedService.sas subscriptionKey sasToken adls.sas-token""",
    "Google": """fs.gs.auth.service.account.private.key fs.gs.auth.service.account.private.key.id
        google.cloud.auth.client.secret fs.gs.auth.client.secret fs.gs.auth.refresh.token fs.gs.encryption.key
        fs.gs.proxy.password gcpAccessToken credentials gcs.oauth2.token gcs.decryption-key GOOGLE_API_KEY
        private_key""",
    "Databricks": """bearerToken delta.sharing.bearerToken databricks.token DATABRICKS_TOKEN clientSecret
        personal_access_token shareCredentials spark.databricks.service.token""",
    "Iceberg and Nessie": """spark.sql.catalog.c.credential spark.sql.catalog.c.token
        spark.sql.catalog.c.oauth2.credential spark.sql.catalog.c.header.Authorization
        spark.sql.catalog.c.header.X-Api-Key spark.sql.catalog.c.jdbc.password
        spark.sql.catalog.c.s3.secret-access-key spark.sql.catalog.c.s3.access-key-id
        spark.sql.catalog.c.s3.session-token spark.sql.catalog.c.rest.auth.basic.password
        spark.sql.catalog.c.adls.auth.shared-key.account.key spark.sql.catalog.c.gcs.oauth2.token
        nessie.authentication.token nessie.authentication.oauth2.client-secret""",
    "search": """es.net.http.auth.pass es.net.proxy.http.pass es.net.ssl.keystore.pass es.net.ssl.truststore.pass
        es.net.http.header.Authorization opensearch.net.http.auth.pass es.api.key apikey ELASTIC_PASSWORD""",
    "other stores": """spark.mongodb.password mongodb.auth.pass spark.redis.auth redis.password requirepass
        spark.cassandra.auth.password spark.cassandra.connection.ssl.keyStore.password influx.token
        neo4j.authentication.basic.password authentication.bearer.token spark.clickhouse.password
        pulsar.client.authParams pulsar.client.authParamMap pulsar.admin.authParams pemPassphrase
        redshift.temporary_aws_session_token forward_spark_s3_credentials db.creds""",
    "Snowflake": """sfPassword sfToken pem_private_key private_key_passphrase private_key_file_pwd passcode
        temporary_aws_secret_access_key temporary_azure_sas_token snowflake.private.key""",
    "programs": """app_key datadog.appKey fernet_key ssh_key aes_key kms_key license_key passkey consumer_key
        slack_webhook_url webhook sentry_dsn cookie jwt password_service_account secret_profile""",
    "Spark": """spark.authenticate.secret spark.io.encryption.key spark.ssl.keyPassword spark.ssl.keyStorePassword
        spark.ssl.trustStorePassword spark.ssl.ui.keyPassword spark.ssl.rpc.privateKeyPassword
        spark.connect.authenticate.token spark.kubernetes.authenticate.submission.oauthToken
        spark.kubernetes.authenticate.driver.oauthToken spark.executorEnv.DB_PASS parquet.encryption.key.list
        parquet.encryption.key.access.token""",
}
OPEN = """key.deserializer value.deserializer key.serializer keyColumn spark.sql.streaming.keyColumn primaryKey
    partition.key recordkey.field keys keyspace monkey sortkey foreign_key kafka.group.id
    tokenizer tokenizer.model tokenization maxTokens max_tokens maxTokensPerBatch num-tokens tokens_per_second
    max.token.length token_count passthrough pass-through passThrough bypass compass surpassed passenger secretary
    sasl.mechanism sasl.login.callback.handler.class sasl.oauthbearer.token.endpoint.url sasl.kerberos.service.name
    basic.auth.credentials.source bearer.auth.issuer.endpoint.url bearer.auth.scope bearer.auth.identity.pool.id
    bearer.auth.custom.provider.class ssl.key.location ssl.keystore.location ssl.keystore.type
    ssl.keystore.certificate.chain ssl.truststore.certificates delegation.token.expiry.time.ms
    fs.s3a.aws.credentials.provider fs.s3a.assumed.role.credentials.provider fs.s3a.encryption.algorithm
    hadoop.security.credential.provider.path fs.azure.account.oauth.provider.type
    fs.azure.account.oauth2.client.endpoint fs.azure.account.oauth2.client.id fs.azure.account.auth.type
    fs.azure.sas.token.provider.type fs.gs.auth.service.account.json.keyfile fs.gs.auth.access.token.provider
    fs.gs.auth.type credentialsFile spark.authenticate spark.authenticate.secret.file
    spark.authenticate.secretBitLength spark.io.encryption.enabled spark.io.encryption.keySizeBits
    spark.io.encryption.keygen.algorithm spark.security.credentials.hive.enabled
    spark.security.credentials.renewalRatio spark.kubernetes.authenticate.driver.oauthTokenFile
    parquet.encryption.footer.key parquet.encryption.column.keys parquet.encryption.kms.client.class
    spark.redis.host es.net.http.auth.user spark.cassandra.auth.username sfUser sfURL sfAuthenticator sfRole
    user user.name userInfoEndpoint user_info_url oauth authType author sacred disaster design signal
    assassin mechanism"""

SECRET_NAMES = [name for names in SECRET.values() for name in names.split()]
VALUE = "u:Secr3t-0f-them"


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_secret_wherever_it_is_given(name: str) -> None:
    assert is_secret(name) and is_secret(name.upper()) and is_secret(f"spark.hadoop.{name}")
    assert masked(name, VALUE) == HIDDEN
    # As arguments of a program.
    option = f"--{name.lstrip('-')}"
    name = name.lstrip("-")
    assert masked_arguments([option, VALUE, "x"]) == [option, HIDDEN, "x"]
    assert masked_arguments([f"{option}={VALUE}"]) == [f"{option}={HIDDEN}"]
    assert masked_arguments(["-c", f"{name}={VALUE}"]) == ["-c", f"{name}={HIDDEN}"]
    assert masked_arguments([f"--conf={name}={VALUE} & more"]) == [f"--conf={name}={HIDDEN}"]
    # In a text: of a setting, and of an error.
    for hidden in (masked_text, without_secrets):
        assert hidden(f"a=b {name}={VALUE} c") == f"a=b {name}={HIDDEN} c"
        assert hidden(f'{{"{name}": "{VALUE}", "a": "b"}}') == f'{{"{name}": "{HIDDEN}", "a": "b"}}'
        assert hidden(f'.option("{name}", "{VALUE}").load()') == f'.option("{name}", "{HIDDEN}").load()'
        assert hidden(f"[('a', 'b'), ('{name}', '{VALUE}')]") == f"[('a', 'b'), ('{name}', '{HIDDEN}')]"
        assert hidden(f"['--a', '{option}', '{VALUE}', 'b']") == f"['--a', '{option}', '{HIDDEN}', 'b']"
    assert (
        without_secrets(f"Map(a -> b, {name} -> {VALUE}, c -> d)")
        == f"Map(a -> b, {name} -> {HIDDEN} c -> d)"
    )


@pytest.mark.parametrize("name", OPEN.split())
def test_shown_wherever_it_is_given(name: str) -> None:
    assert not is_secret(name) and not is_secret(f"spark.hadoop.{name}")
    assert masked(name, VALUE) == VALUE
    for args in ([f"--{name}", VALUE], [f"--{name}={VALUE}"], [f"--conf={name}={VALUE}"]):
        assert masked_arguments(args) == args
    for text in (f"a=b {name}={VALUE} c", f'{{"{name}": "{VALUE}"}}', f'.option("{name}", "{VALUE}")'):
        assert masked_text(text) == without_secrets(text) == text


def test_a_document_is_shown_and_fails_without_them() -> None:
    for name in SECRET_NAMES:
        made = document(
            {"name": "in", "source": {"format": "org.x.Vendor", "options": {name: VALUE, "topic": "t"}}},
            {"name": "out", "inputs": ["in"], "sink": {"format": "org.x.Vendor", "options": {name: VALUE}}},
            config={f"spark.x.{name}": VALUE},
        )
        assert VALUE not in str(masked_document(made)), name


def test_a_program_fails_without_the_secrets_of_its_arguments() -> None:
    made = parse_program(
        {
            "name": "p",
            "script": "job.py",
            "artifacts": ["job.py"],
            "args": ["--user-info", "u:Secr3t-1", "--user.info=u:Secr3t-2", "-c", "x.basic.auth.user.info=u:Secr3t-3",
                     "--conf=user.info=u:Secr3t-4 4", "--token=c2VjcmV0MQ==", "--conf=a=b"],
        }
    )  # fmt: skip
    known = secrets_of(graph_of(made))
    said = "refused: u:Secr3t-1 Secr3t-1; Secr3t-2, Secr3t-3 and 'u:Secr3t-4 4', c2VjcmV0MQ=="
    shown = without_secrets(said, known)
    assert "ecr3t" not in shown and "c2Vj" not in shown and shown.startswith("refused: ******"), shown


def test_a_header_or_a_pair_needs_no_blank_behind_its_colon() -> None:
    assert masked_arguments(["--header=X-Api-Key:Secr3t1", "-x", "password:Secr3t1"]) == [
        f"--header=X-Api-Key:{HIDDEN}",
        "-x",
        f"password:{HIDDEN}",
    ]
    for text in ("jdbc:postgresql://h:1/d", "12:30:01", "user:bob", "C:/secret", "tokenizer:x"):
        assert masked_text(text) == text


def test_the_password_of_a_user_is_secret_without_the_user() -> None:
    for name in ("spark.schema.registry.basic.auth.user.info", "spark.redis.auth", "spark.x.credential"):
        known = secrets_of(parse_document(document(config={name: "me:Secr3t-0f-me"})))
        assert without_secrets("401 for me:Secr3t-0f-me, Secr3t-0f-me", known) == "401 for ******, ******"
    # What is behind the colon of others is an ordinary word.
    known = secrets_of(
        parse_document(document(config={"spark.kubernetes.driver.secretKeyRef.USER": "store:username"}))
    )
    assert without_secrets("no username", known) == "no username"


def test_private_keys_are_hidden_by_what_they_are() -> None:
    key = "\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7\n"
    for kind in ("", "RSA ", "EC ", "ENCRYPTED "):
        text = f"a -----BEGIN {kind}PRIVATE KEY-----{key}-----END {kind}PRIVATE KEY----- and b, c"
        for shown in (masked_text(text), without_secrets(text), masked("x", text)):
            assert shown == text.replace(key, HIDDEN)
    certificate = f"-----BEGIN CERTIFICATE-----{key}-----END CERTIFICATE-----"
    assert masked_text(certificate) == certificate


def test_each_option_of_a_jvm_is_for_itself() -> None:
    options = "-javaagent:/opt/token-agent.jar -Dx=1 -Dschema.registry.basic.auth.user.info=u:p"
    assert masked("spark.driver.extraJavaOptions", options) == options.replace("u:p", HIDDEN)
